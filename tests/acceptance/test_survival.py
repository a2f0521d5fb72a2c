"""What must hold when everything goes wrong at once: kills, freezes, outages, poison, on real processes and servers."""

import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from elasticsearch import Elasticsearch

from labs.proxy import Proxy
from tests.fixtures.depth import depth, is_long
from tests.fixtures.failures import statuses
from tests.fixtures.metrics import metric
from tests.fixtures.overlapping import open_events
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


def produce(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'block', g::text, 'upsert', json_build_object('n', g) from generate_series(1, %s) g",
        [count],
    )


def assert_every_document_equals_its_source(connection: psycopg.Connection, es: Elasticsearch, index: str) -> int:
    """The newest event of each entity against the document, one by one; a deleted one must be absent."""
    newest = connection.execute(
        "select distinct on (entity_id) entity_type || ':' || entity_id, op, event_version, payload::text"
        " from search_outbox_events order by entity_id, event_version desc"
    ).fetchall()
    es.indices.refresh(index=index)
    wrong = []
    for start in range(0, len(newest), 1_000):
        part = newest[start : start + 1_000]
        found = es.mget(index=index, ids=[row[0] for row in part])["docs"]
        for (id, op, version, payload), document in zip(part, found, strict=True):
            expected = None if op == "delete" else (version, json.loads(payload))
            seen = (document["_version"], document["_source"]) if document.get("found") else None
            if expected != seen:
                wrong.append((id, expected, seen))
    assert not wrong, wrong[:5]
    return len(newest)


@contextmanager
def producing(database: str, events: int, seconds: float) -> Iterator[None]:
    """A producer of its own: 20 % deletes over a fifth as many entities, spread over the time."""
    ended = threading.Event()

    def run() -> None:
        dice = random.Random(4)
        with psycopg.connect(database, autocommit=True) as connection:
            for number in range(50):
                rows = [
                    (str(dice.randrange(events // 5)), "delete" if dice.random() < 0.2 else "upsert")
                    for _ in range(events // 50)
                ]
                connection.execute(
                    "insert into search_outbox_events (entity_type, entity_id, op, payload)"
                    " select 'a', r ->> 0, r ->> 1,"
                    " case when r ->> 1 = 'upsert' then json_build_object('n', %s, 'e', r ->> 0) end"
                    " from json_array_elements(%s::json) r",
                    [number, json.dumps(rows)],
                )
                ended.wait(seconds / 50)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE_SECONDS)


def test_killed_and_frozen_workers_lose_nothing(
    start_daemon: StartProcess, database: str, connection: psycopg.Connection, es: Elasticsearch, index: str
) -> None:
    """Lease 3 s; kill -9 every 2 s, SIGSTOP for two leases every 5 s. Two minutes of it with OUTBOX_TEST_SLOW."""
    seconds, events = depth((12, 5_000), (25, 10_000), (120, 50_000))
    dice = random.Random(1)
    settings = {"OUTBOX_LEASE_SECONDS": "3", "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1", "OUTBOX_BATCH_SIZE": "200"}
    daemons = [start_daemon(OUTBOX_WORKER_ID=f"w{n}", **settings) for n in range(2)]
    dead: list[RunningProcess] = []
    frozen: dict[RunningProcess, float] = {}
    freezes = 0
    with producing(database, events, seconds):
        ends, next_kill, next_freeze = time.monotonic() + seconds, 0.0, 0.0
        while time.monotonic() < ends or len(dead) < 5 or freezes < 2:
            now = time.monotonic()
            working = [place for place, daemon in enumerate(daemons) if daemon.facts("batch.claimed")]
            # A frozen one is left to wake up and find its lease lost; one that has not come to work dies of nothing.
            awake = [place for place in working if now > frozen.get(daemons[place], 0.0) + 7.0]
            if awake and now >= next_freeze:
                victim = daemons[awake.pop(dice.randrange(len(awake)))]
                victim.signal(signal.SIGSTOP)
                threading.Timer(6.0, _thaw, [victim]).start()
                frozen[victim], next_freeze = now, now + 5.0
                freezes += 1
            if awake and now >= next_kill:
                place = dice.choice(awake)
                daemons[place].kill()
                dead.append(daemons[place])
                daemons[place] = start_daemon(OUTBOX_WORKER_ID=f"w{place}", **settings)
                next_kill = now + 2.0
            time.sleep(0.05)
            assert now < ends + 120, "no worker comes to work"
    for daemon in daemons:
        _thaw(daemon)
    start_daemon(OUTBOX_WORKER_ID="w9", **settings)
    eventually(lambda: open_events(connection) == 0, what="no open row")
    assert statuses(connection) == {"done": events}
    assert_every_document_equals_its_source(connection, es, index)
    assert any(daemon.facts("lease.lost") for daemon in frozen) or not is_long(), "nobody found its lease lost"


def _thaw(daemon: RunningProcess) -> None:
    if daemon.returncode is None:
        daemon.signal(signal.SIGCONT)


def test_a_frozen_workers_late_settle_changes_nothing_and_is_counted(
    start_daemon: StartProcess, connection: psycopg.Connection, es: Elasticsearch, index: str, elastic_url: str
) -> None:
    settings = {"OUTBOX_LEASE_SECONDS": "3", "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1"}
    produce(connection, 300)
    with Proxy.to(elastic_url) as link:
        link.hold(b"_bulk")
        frozen = start_daemon(ELASTIC_URL=link.url(elastic_url), OUTBOX_WORKER_ID="frozen", **settings)
        frozen.wait_until(lambda: statuses(connection).get("processing", 0) == 300, "rows in its hands")
        frozen.signal(signal.SIGSTOP)
        healthy = start_daemon(OUTBOX_WORKER_ID="healthy", **settings)
        healthy.wait_until(lambda: statuses(connection) == {"done": 300}, "another worker finished them", 60)
        link.heal()
        frozen.signal(signal.SIGCONT)
        frozen.wait_for_fact("lease.lost")
        frozen.wait_until(lambda: metric(frozen, "outbox_lease_lost_total") == 300, "all 300 counted")
    assert statuses(connection) == {"done": 300}
    assert metric(healthy, "outbox_lease_lost_total") == 0
    assert_every_document_equals_its_source(connection, es, index)
