"""kafka: the drain of a topic against raw `_bulk` and the drain of the table, by turns, with the same documents; what
PostgreSQL does for an event in both; and the way through Debezium."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace

import psycopg

from bench.account import CpuAccount
from bench.debezium import capacity
from bench.debezium import measure as through_debezium
from bench.drain import Shape, warm_up
from bench.load import bulk_bodies, fill, rest
from bench.raw import send
from bench.result import BenchmarkResult, CannotRun, Threshold, progress
from bench.stack import POSTGRES, BenchmarkServers
from bench.topic import BenchmarkTopic
from bench.worker import Daemons, daemons, log_size
from outbox.embedded import EmbeddedKafka, EmbeddedPostgres
from outbox.embedded.pins import DEBEZIUM, KAFKA_VERSION

RAW = Threshold("drain of Kafka / raw _bulk", 0.70, 0.78)
TABLE = Threshold("drain of Kafka / drain of the table", 1.0, 1.2)
CPU = Threshold("CPU of PostgreSQL: walsender and exceptions / claim and settle", 0.25, 0.15, most=True)
WAL = Threshold("WAL beyond the insert: Kafka / table", 0.05, 0.02, most=True)
POISON = Threshold("drain of Kafka with 0.05 % poison / without", 0.95, 0.98)
LOGICAL = {"wal_level": "logical"}
PARTITIONS = 6  # what `outbox kafka connector` gives a topic
POISON_EVERY = 2_000  # 0.05 %
IDLE_SECONDS = 5.0
# A lane reads its records itself, while nobody works on its request: with two of them on two cores 0.3 to 0.4 of a core
# was idle. Of raw `_bulk`, by turns in one run: 0.61 with two lanes, 0.64 to 0.69 with three, 0.68 to 0.80 with four.
# In another, with a daemon that switches between its lanes after 0.5 ms: 0.68 with four, 0.74 with six.
LANES = 6
CLEAN, POISONED, ROWS = "Kafka", "Kafka, 0.05 % poison", "table"
NOTES = """\
A drain lasts from its first claim until its last event is settled (table) or its last offset committed (Kafka).
Records are a minute old, so each is checked against deletes: PostgreSQL's CPU in a drain without poison is that check.
CPU of PostgreSQL: walsender, and what the drain with poison takes beyond the one without; over the drain of the table.
Of all three, without what the server takes while both daemons are idle.
Debezium with one slot and with two, one for each of two entity types: from the first insert of 100,000 events, written
as fast as PostgreSQL takes them, until the topic has them; 30,000 before that are not counted.
WAL beyond the insert: after the producer's insert, and during the drain with poison; over that of claim and settle."""


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 5, **shape: int) -> BenchmarkResult:
    """`--set`: events, size, lanes, processes, batch, prose."""
    if not stack.embedded:
        raise CannotRun("it reads the CPU of its servers: leave OUTBOX_TEST_DATABASE_URL and _ELASTIC_URL out")
    chosen = Shape.of({"lanes": LANES, **shape}, smoke=smoke)
    result = BenchmarkResult("kafka", smoke)
    result.settings = {**asdict(chosen), "partitions": PARTITIONS, "poison_every": POISON_EVERY}
    result.notes = NOTES.splitlines()
    result.servers = {"kafka": KAFKA_VERSION, "debezium": DEBEZIUM.version}
    rounds = 1 if smoke else rounds
    with _servers(stack) as (pair, kafka):
        with _prepared(pair, kafka, chosen, warm=not smoke) as drains:
            for number in range(rounds):
                progress(f"round {number + 1} of {rounds}")
                drains.one_round(result, number)
        for number in range(rounds):
            progress(f"through Debezium, {number + 1} of {rounds}")
            through_debezium(pair, kafka, result, size=chosen.size, smoke=smoke)
            capacity(pair, kafka, result, size=chosen.size, smoke=smoke)
    judge(result)
    return result


def judge(result: BenchmarkResult) -> None:
    """Medians of ratios where both were measured in one round."""
    result.judge(RAW, result.median("Kafka / raw"))
    result.judge(TABLE, result.median("Kafka / table"))
    result.judge(POISON, result.median("with poison / without"))
    clean, poisoned, rows = (result.median(f"{name}: CPU of postgresql") for name in (CLEAN, POISONED, ROWS))
    walsender = result.median("CPU of the walsender")
    result.judge(CPU, (walsender + max(poisoned - clean, 0.0)) / rows)
    result.add("PostgreSQL in all, the checks against deletes included / table", "", (walsender + poisoned) / rows)
    beyond = result.median("WAL after the insert") + result.median(f"{POISONED}: WAL")
    result.judge(WAL, beyond / result.median(f"{ROWS}: WAL"))


@contextmanager
def _servers(stack: BenchmarkServers) -> Iterator[tuple[BenchmarkServers, EmbeddedKafka]]:
    """A PostgreSQL that a connector can read, for both sources; the search server of `stack`; one broker.
    Between two sides the pair must be idle: a broker that is asked for records never quite is."""
    (search,) = [name for name in stack.embedded if name != "postgresql"]
    with (
        EmbeddedPostgres.temporary(settings={**POSTGRES, **LOGICAL}) as postgres,
        EmbeddedKafka.temporary(heap="512m") as kafka,
    ):
        servers = {"postgresql": postgres, search: stack.embedded[search]}
        yield replace(stack, admin_url=postgres.url, embedded=servers), kafka


@dataclass(slots=True)
class BothSources:
    """Two daemons, each with a database and an index of its own, paused until its turn: one reads the table, one the
    topic, both with the same documents."""

    stack: BenchmarkServers
    kafka: EmbeddedKafka
    shape: Shape
    table_url: str
    kafka_url: str
    index: str
    raw_index: str
    topic: BenchmarkTopic
    of_table: Daemons
    of_kafka: Daemons
    idle: dict[str, float] = field(default_factory=dict)  # cores of PostgreSQL while both daemons are paused
    sides: dict[str, Callable[[BenchmarkResult], float]] = field(init=False)

    def __post_init__(self) -> None:
        self.sides = {
            ROWS: self._drain_table,
            CLEAN: lambda result: self._drain_topic(result, CLEAN),
            POISONED: lambda result: self._drain_topic(result, POISONED, POISON_EVERY),
        }

    def one_round(self, result: BenchmarkResult, number: int) -> None:
        """Raw first and last, because the speed of a shared machine changes within a round; the sides between them in
        another order each time."""
        fill(self.table_url, self.shape.events, self.shape.size, prose=self.shape.prose)
        bodies = list(bulk_bodies(self.table_url, self.shape.batch))
        self.idle = self._idle()
        result.add("idle: CPU of postgresql", "cores", self.idle["postgresql"])
        seconds = self._raw(bodies)
        names = list(self.sides)
        turned = names[number % len(names) :] + names[: number % len(names)]
        rates = {name: self.sides[name](result) for name in turned}
        raw = 2 * self.shape.events / (seconds + self._raw(bodies))
        result.add("raw _bulk", "docs/s", raw)
        for name in names:
            result.add(name, "events/s", rates[name])
        result.add("table / raw", "", rates[ROWS] / raw)
        result.add("Kafka / raw", "", rates[CLEAN] / raw)
        result.add("Kafka / table", "", rates[CLEAN] / rates[ROWS])
        result.add("with poison / without", "", rates[POISONED] / rates[CLEAN])

    def _raw(self, bodies: list[bytes]) -> float:
        self._settle_down(self.raw_index)
        took = send(self.stack.elastic_url, self.raw_index, bodies, self.shape.lanes * self.shape.processes)
        self.stack.fresh_index(self.raw_index)  # so that its segments are not merged while another side runs
        return took

    def _idle(self) -> dict[str, float]:
        self.stack.quiet()
        before = self.stack.cpu_seconds()["postgresql"]
        time.sleep(IDLE_SECONDS)
        return {"postgresql": (self.stack.cpu_seconds()["postgresql"] - before) / IDLE_SECONDS}

    def _settle_down(self, index: str) -> None:
        self.stack.fresh_index(index)
        self.stack.quiet()

    def _account(self, url: str, running: Daemons) -> CpuAccount:
        everything = replace(self.stack, embedded={**self.stack.embedded, "kafka": self.kafka})
        account = CpuAccount(everything, url, running, self.idle)
        account.open()
        return account

    def _drain_table(self, result: BenchmarkResult) -> float:
        self._settle_down(self.index)
        account = self._account(self.table_url, self.of_table)
        self.of_table.resume()
        seconds = self.of_table.wait_done(self.shape.events)
        account.close(result, self.shape.events, f"{ROWS}: ")
        self._end(self.table_url, self.of_table)
        return self.shape.events / seconds

    def _drain_topic(self, result: BenchmarkResult, name: str, poison_every: int = 0) -> float:
        _empty(self.kafka_url)
        self.topic.fill(self.table_url, poison_every)
        self._settle_down(self.index)
        account, since = self._account(self.kafka_url, self.of_kafka), log_size()
        self.of_kafka.resume()
        seconds = self.topic.wait_committed(self.shape.events, self.of_kafka, since)
        account.close(result, self.shape.events, f"{name}: ")
        self._end(self.kafka_url, self.of_kafka)
        self._check(self.shape.events // poison_every if poison_every else 0)
        return self.shape.events / seconds

    def _end(self, url: str, running: Daemons) -> None:
        running.pause()
        rest(url)

    def _check(self, refused: int) -> None:
        """A drain that lost something, or stored what it need not, is no drain. Above fifty per minute the brake holds
        refused ones back: their rows are open, with the refusal in them."""
        client = self.stack.client()
        client.indices.refresh(index=self.index)
        found = client.count(index=self.index)["count"]
        with psycopg.connect(self.kafka_url) as connection:
            row = connection.execute(
                "select count(*), count(*) filter (where status <> 'done' and error is not null)"
                " from search_outbox_events"
            ).fetchone()
        if (found, row) != (self.shape.events - refused, (refused, refused)):
            raise RuntimeError(f"{found} documents and {row} rows (all, with a refusal), {refused} were to be refused")
        self.stack.fresh_index(self.index)  # the next side must find nothing to merge


@contextmanager
def _prepared(stack: BenchmarkServers, kafka: EmbeddedKafka, shape: Shape, *, warm: bool) -> Iterator[BothSources]:
    with ExitStack() as undo:
        table_url, kafka_url = (undo.enter_context(stack.database()) for _ in range(2))
        index, raw_index = (undo.enter_context(stack.index()) for _ in range(2))
        if warm:
            warm_up(stack, table_url, raw_index, shape.size, shape.lanes)
        stack.fresh_index(index)
        topic = BenchmarkTopic(kafka.url, "bench", "bench", PARTITIONS)
        topic.create()
        # Both write a line per batch: the first claim of a topic is known from there.
        settings = {**shape.settings, "OUTBOX_LOG_LEVEL": "info"}
        _empty(table_url)
        of_table, of_kafka = (
            undo.enter_context(
                daemons(url, stack.elastic_url, index, count=shape.processes, settings=settings | more, paused=True)
            )
            for url, more in ((table_url, {}), (kafka_url, topic.settings))
        )
        sources = BothSources(stack, kafka, shape, table_url, kafka_url, index, raw_index, topic, of_table, of_kafka)
        if warm:
            progress("a warm-up round")
            sources.one_round(BenchmarkResult("warm", True), 0)
        yield sources


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events, search_outbox_leases, search_outbox_attempts")
