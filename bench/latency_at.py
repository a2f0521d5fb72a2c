"""latency_at: how late a document is at each rate, from its commit's place in the schedule to settled, up to the first
rate that is not sustained. The schedule does not wait for the system, so that no stall is hidden."""

import json
import subprocess
import sys
from dataclasses import dataclass

import psycopg

from bench.account import CpuAccount
from bench.drain import warm_up
from bench.load import document_sql, make_view, text_of
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons

HALF = Threshold("p99 at half of the highest rate, ms", 250, 100, most=True)
SLOW = Threshold("p99.9 at 100 per second, ms", 100, 50, most=True)
RATES = (100, 250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000)
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
SUSTAINED_SECONDS = 1.0  # the last event may be settled so long after its commit was due
SIZE, ARTICLES = 500, 100_000
# At most 100 transactions per second, so that the producer itself is not what is measured. It prints when each was due.
PRODUCER = """
import json, sys, time, psycopg
url, rate, seconds, statement = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
each = max(1, rate // 100)
due, late = [], 0.0
with psycopg.connect(url, autocommit=True) as c:
    start, wall = time.monotonic() + 0.5, time.time() + 0.5
    for n in range(int(rate * seconds) // each):
        at = n * each / rate
        time.sleep(max(0.0, start + at - time.monotonic()))
        c.execute(statement, [n * each + 1, (n + 1) * each], prepare=True)
        due.append(wall + at)
        late = time.monotonic() - start - at
json.dump({"due": due, "each": each, "late": late}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Way:
    """How the documents come."""

    name: str
    statement: str

    def make(self, url: str) -> None:
        if self.name == "view":
            make_view(url, ARTICLES, SIZE)


# A document of the view is an article that is there: ids come round.
WAYS = (
    Way(
        "payload",
        f"insert into search_outbox_events (entity_type, entity_id, op, payload)"
        f" select 'a', g::text, 'upsert', {document_sql(SIZE)} from generate_series(%s::int, %s::int) g",
    ),
    Way(
        "view",
        f"insert into search_outbox_events (entity_type, entity_id, op)"
        f" select 'article', (1 + g %% {ARTICLES})::text, 'upsert' from generate_series(%s::int, %s::int) g",
    ),
)


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, seconds: int = 20, lanes: int = 2
) -> BenchmarkResult:
    """`--set`: seconds (per rate), lanes."""
    rates, seconds, rounds = ((100, 500), 2, 1) if smoke else (RATES, seconds, rounds)
    result = BenchmarkResult("latency_at", smoke)
    result.settings = {"seconds": seconds, "lanes": lanes, "OUTBOX_LISTEN": "true"}
    result.documents = text_of(SIZE)
    result.notes.append("from the moment at which the commit was due, to processed_at")
    for way in WAYS:
        highest = [_climb(stack, result, way, rates, seconds, lanes, warm=not smoke) for _ in range(rounds)]
        result.add(f"{way.name}: highest sustained rate", "events/s", sorted(highest)[len(highest) // 2])
        half = max(rate for rate in rates if rate <= max(rates[0], sorted(highest)[len(highest) // 2] / 2))
        result.judge(_named(HALF, way), f"{way.name}, {half:,} per second: p99")
        result.judge(_named(SLOW, way), f"{way.name}, {rates[0]:,} per second: p99.9")
    return result


def _named(bar: Threshold, way: Way) -> Threshold:
    return Threshold(f"{way.name}: {bar.name}", bar.first, bar.goal, most=True)


def _climb(
    stack: BenchmarkServers,
    result: BenchmarkResult,
    way: Way,
    rates: tuple[int, ...],
    seconds: int,
    lanes: int,
    *,
    warm: bool,
) -> int:
    """The highest rate that was sustained; the first one that was not ends the climb, and its figures stay."""
    settings = {"OUTBOX_LISTEN": "true", "OUTBOX_CONCURRENCY": str(lanes)}
    highest = 0
    with stack.database(notify=True) as url, stack.index() as index:
        if warm:
            warm_up(stack, url, index, SIZE)
        way.make(url)
        stack.fresh_index(index)
        with daemons(url, stack.elastic_url, index, settings=settings) as running:
            for rate in rates:
                progress(f"{way.name}: {rate:,} per second")
                if not _at(stack, result, way, url, running, rate, seconds):
                    result.notes.append(f"{way.name}: not sustained at {rate:,} per second")
                    break
                highest = rate
    return highest


def _at(
    stack: BenchmarkServers,
    result: BenchmarkResult,
    way: Way,
    url: str,
    running: Daemons,
    rate: int,
    seconds: int,
) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate search_outbox_events, search_outbox_leases, search_outbox_attempts")
    stack.quiet(5.0)
    prefix = f"{way.name}, {rate:,} per second: "
    account = CpuAccount(stack, url, running)
    account.open()
    command = [sys.executable, "-c", PRODUCER, url, str(rate), str(seconds), way.statement]
    made = json.loads(subprocess.run(command, check=True, timeout=seconds * 10, capture_output=True, text=True).stdout)
    events = len(made["due"]) * made["each"]
    running.wait_done(events)
    account.close(result, events, prefix)
    took = _latencies(url, made["due"], made["each"])
    for name, share in SHARES.items():
        result.add(f"{prefix}{name}", "ms", percentile(took, share) * 1000)
    last = max(took[-made["each"] :])
    return bool(last < SUSTAINED_SECONDS and made["late"] < SUSTAINED_SECONDS)


def _latencies(url: str, due: list[float], each: int) -> list[float]:
    """In the order of the schedule: a transaction's rows have consecutive seqs, and there is one producer."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select extract(epoch from processed_at)::float8 from search_outbox_events order by seq"
        )
        return [done - due[number // each] for number, (done,) in enumerate(rows)]
