"""One type in trouble does not harm the others: a mapping that refuses it, and a limit that holds it back."""

import threading

import pytest
from elasticsearch import Elasticsearch

from outbox.store.schema.migrate import migrate
from tests.fixtures.metrics import metric
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.queue import EventTable

pytestmark = pytest.mark.long  # test_survival.py is the daily drill; these are its full lengths and causes apart

BAD = '{"number": "many"}'


def by_type(queue: EventTable) -> dict[tuple[str, str], int]:
    rows = queue.connection.execute(
        "select entity_type, status, count(*) from search_outbox_events group by 1, 2"
    ).fetchall()
    return {(entity_type, status): n for entity_type, status, n in rows}


def refuse_one_type(
    queue: EventTable, start_daemon: StartProcess, es: Elasticsearch, index: str, rows: int
) -> RunningProcess:
    """Half of the rows are of a type that the mapping refuses; they come first."""
    es.indices.put_mapping(index=index, properties={"number": {"type": "integer", "ignore_malformed": False}})
    queue.produce_many(rows // 2, entity_type="page", payload=BAD)
    queue.produce_many(rows // 2)
    daemon = start_daemon()
    daemon.wait_until(lambda: by_type(queue).get(("article", "done")) == rows // 2, "the other type")
    daemon.wait_for_fact("brake.on")
    assert by_type(queue)["page", "failed"] <= 50
    assert metric(daemon, "outbox_braked_fingerprints") == 1
    held = "status = 'pending' and entity_type = 'page' and attempts > 0"
    assert queue.rows(held) == [], "those that wait have their attempt"
    return daemon


def fix(es: Elasticsearch, index: str) -> None:
    """What is malformed is left out from now on: the documents fit."""
    es.indices.close(index=index)
    es.indices.put_settings(index=index, settings={"index.mapping.ignore_malformed": True})
    es.indices.put_mapping(index=index, properties={"number": {"type": "integer", "ignore_malformed": True}})
    es.indices.open(index=index)


def test_among_20_000_rows_at_most_fifty_per_minute_fail_and_the_rest_go_by_themselves(
    queue: EventTable, start_daemon: StartProcess, es: Elasticsearch, index: str
) -> None:
    rows = 20_000
    daemon = refuse_one_type(queue, start_daemon, es, index, rows)
    fix(es, index)
    daemon.wait_until(lambda: set(queue.counts()) == {"done", "failed"}, "the rest to go by themselves", within=240)
    found = by_type(queue)
    assert found["page", "failed"] <= 100, "fifty in each of two minutes at the most"
    assert found["page", "done"] == rows // 2 - found["page", "failed"]
    assert found["article", "done"] == rows // 2
    assert daemon.terminate() == 0


class Sampler(threading.Thread):
    """Reads what is in flight of one type as often as it can."""

    def __init__(self, queue: EventTable, entity_type: str) -> None:
        super().__init__(daemon=True)
        self.queue = queue
        self.entity_type = entity_type
        self.most = self.looks = 0
        self.stop = threading.Event()

    def run(self) -> None:
        with self.queue.pool("sampler").connection() as connection:
            while not self.stop.is_set():
                row = connection.execute(
                    "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
                    " and next_retry_at is null and abandoned_count < 1 and entity_type = %s and status = 'processing'"
                    " and seq < (select min(seq) + 2000 from search_outbox_events where processed_at is null"
                    " and failed_at is null and next_retry_at is null and abandoned_count < 1 and entity_type = %s)",
                    [self.entity_type, self.entity_type],
                ).fetchone()
                self.most = max(self.most, row[0] if row else 0)
                self.looks += 1
                self.stop.wait(0.01)


LIMITED = {"OUTBOX_KIND_CONCURRENCY": '{"slow": 5}', "OUTBOX_LOG_LEVEL": "warning"}


def rate(queue: EventTable, daemons: list[RunningProcess], fast: int, slow: int) -> float:
    """Fast rows per second, by PostgreSQL's clock, when all become visible at once behind the slow ones."""
    with queue.connection.transaction():
        queue.connection.execute("delete from search_outbox_events where status in ('pending', 'done')")
        queue.produce_many(slow, entity_type="slow")
        queue.produce_many(fast, entity_type="fast")
    left = "select exists (select from search_outbox_events where entity_type = 'fast' and processed_at is null)"
    daemons[0].wait_until(lambda: not queue.value(left), "all fast rows", within=300)
    took = queue.value(
        "select extract(epoch from max(processed_at) - min(processed_at))::float8 from search_outbox_events"
        " where entity_type = 'fast'"
    )
    return fast / max(float(took), 0.001)


def limited_beside_others(
    queue: EventTable, start_daemon: StartProcess, fast: int, slow: int, rounds: int
) -> tuple[list[float], Sampler]:
    """What the fast rows keep of their speed, by turns without and with the slow ones ahead of them."""
    migrate(queue.url, by_type=True)
    daemons = [start_daemon(**LIMITED) for _ in range(3)]
    for daemon in daemons:
        daemon.wait_for_http("/healthz")
    rate(queue, daemons, fast, 0)  # warm
    sampler = Sampler(queue, "slow")
    sampler.start()
    shares = []
    for _ in range(rounds):
        alone = rate(queue, daemons, fast, 0)
        shares.append(rate(queue, daemons, fast, slow) / alone)
        assert by_type(queue).get(("slow", "done"), 0) > 0, "the limited type moves as well"
    sampler.stop.set()
    sampler.join()
    for daemon in daemons:
        assert daemon.terminate() == 0
    assert sampler.looks > 20
    assert 1 <= sampler.most <= 5, "never more than the limit in flight, over three processes"
    return sorted(shares), sampler


def test_100_000_limited_rows_ahead_leave_the_others_eight_tenths_of_their_speed(
    queue: EventTable, start_daemon: StartProcess
) -> None:
    shares, sampler = limited_beside_others(queue, start_daemon, fast=10_000, slow=100_000, rounds=5)
    told = ", ".join(f"{share:.2f}" for share in shares)
    print(f"shares of full speed: {told}; at most {sampler.most} in flight in {sampler.looks} samples")
    assert shares[2] >= 0.8
