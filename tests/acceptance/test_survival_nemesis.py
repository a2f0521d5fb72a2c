"""Two workers that are killed and stopped again and again: nothing lost, nothing different, nobody left behind."""

import contextlib
import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from elasticsearch import Elasticsearch, helpers

from tests.fixtures.metrics import metric
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import Queue
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long  # test_survival.py is the daily drill; these are its full lengths and causes apart

LEASE_SECONDS = 3
SETTINGS = {
    "OUTBOX_LEASE_SECONDS": str(LEASE_SECONDS),
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1",
    "OUTBOX_BATCH_SIZE": "100",
    "OUTBOX_LOG_LEVEL": "warning",
}


class Nemesis:
    """Two slots for workers. kill -9 of a random one every two seconds, SIGSTOP for two leases every five."""

    def __init__(self, start: Callable[[str], RunningProcess], seed: int) -> None:
        self.start = start
        self.dice = random.Random(seed)
        self.workers = {name: start(name) for name in ("w1", "w2")}
        self.kills = self.stops = 0
        self.lost = 0.0

    def rage(self, seconds: float, feed: Callable[[float], None]) -> None:
        """`feed` is told which share of the time is over."""
        began = time.monotonic()
        next_kill, next_stop, asleep = began + 2, began + 5, dict[str, float]()
        while (now := time.monotonic()) < began + seconds:
            feed((now - began) / seconds)
            for name in [name for name, until in asleep.items() if now >= until]:
                self.workers[name].signal(signal.SIGCONT)
                del asleep[name]
            if now >= next_stop and (name := self._someone(asleep)):
                self.workers[name].signal(signal.SIGSTOP)
                asleep[name] = now + 2 * LEASE_SECONDS
                self.stops += 1
                next_stop = now + 5
            if now >= next_kill and (name := self._someone(asleep)):
                self.count(self.workers[name])
                self.workers[name].kill()
                self.workers[name] = self.start(name)
                self.kills += 1
                next_kill = now + 2
            time.sleep(0.05)
        for name in asleep:
            self.workers[name].signal(signal.SIGCONT)

    def _someone(self, asleep: dict[str, float]) -> str | None:
        awake = [name for name in self.workers if name not in asleep]
        return self.dice.choice(awake) if awake else None

    def count(self, worker: RunningProcess) -> None:
        with contextlib.suppress(OSError):  # killed before its page was up
            self.lost += metric(worker, "outbox_lease_lost_total")

    def finish(self) -> None:
        for worker in self.workers.values():
            worker.wait_for_http("/healthz", within=60)


class Producer:
    """Commits events at an even pace, so that there is work whenever something is killed."""

    def __init__(self, queue: Queue, events: int) -> None:
        self.queue = queue
        self.events = events
        self.produced = 0

    def feed(self, share: float) -> None:
        n = min(int(self.events * (share + 0.1)), self.events) - self.produced
        if n > 0:
            produce(self.queue, self.produced, n)
            self.produced += n


def drive(
    queue: Queue,
    start_daemon: StartProcess,
    es: Elasticsearch,
    index: str,
    elastic_url: str,
    events: int,
    seconds: float,
) -> Nemesis:
    seed = int(os.environ.get("OUTBOX_TEST_SEED", "4"))
    producer = Producer(queue, events)
    with proxy_to(elastic_url) as (proxy, url):
        proxy.slow(0.1)  # so that a stop finds a batch in flight
        nemesis = Nemesis(lambda name: start_daemon(**SETTINGS, ELASTIC_URL=url, OUTBOX_WORKER_ID=name), seed)
        nemesis.rage(seconds, producer.feed)
        producer.feed(1.0)
        nemesis.finish()
        eventually(lambda: set(queue.counts()) == {"done"}, within=180, every=0.5, what="the queue to drain")
        for worker in nemesis.workers.values():
            nemesis.count(worker)
            assert worker.terminate() == 0
    compare(queue, es, index)
    return nemesis


def produce(queue: Queue, start: int, n: int) -> None:
    """Over a tenth as many entities as events: updates, deletes and entities that come back."""
    queue.connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'article', (hashint4(g) & 4095)::text, case when g %% 11 = 0 then 'delete' else 'upsert' end,"
        "        case when g %% 11 = 0 then null else json_build_object('n', g, 'text', repeat('x', g %% 300)) end"
        "   from generate_series(%s::int, %s::int) g",
        [start, start + n - 1],
    )


def compare(queue: Queue, es: Elasticsearch, index: str) -> None:
    """Every document equals its source: the last committed event of each entity, body and version."""
    expected = {
        f"article:{entity}": (version, digest(payload))
        for entity, op, version, payload in queue.connection.execute(
            "select distinct on (entity_id) entity_id, op, event_version, payload from search_outbox_events"
            " order by entity_id, event_version desc"
        ).fetchall()
        if op == "upsert"
    }
    es.indices.refresh(index=index)
    found = {
        hit["_id"]: (hit["_version"], digest(hit["_source"]))
        for hit in helpers.scan(es, index=index, query={"version": True}, size=2_000)
    }
    assert found.keys() - expected.keys() == set(), "deleted documents that are back, or documents of nobody"
    assert expected.keys() - found.keys() == set(), "documents that are missing"
    assert found == expected


def digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def test_half_a_minute_of_kill_9_and_sigstop_loses_nothing(
    queue: Queue, start_daemon: StartProcess, es: Elasticsearch, index: str, elastic_url: str
) -> None:
    nemesis = drive(queue, start_daemon, es, index, elastic_url, events=12_000, seconds=25)
    assert nemesis.kills >= 4
    assert nemesis.stops >= 2
    check_end(queue)


def test_two_minutes_of_kill_9_and_sigstop_over_50_000_events_lose_nothing(
    queue: Queue, start_daemon: StartProcess, es: Elasticsearch, index: str, elastic_url: str
) -> None:
    nemesis = drive(queue, start_daemon, es, index, elastic_url, events=50_000, seconds=120)
    assert nemesis.kills >= 20
    assert nemesis.lost > 0, "no stop met a batch in flight: the drill proved nothing about the fence"
    check_end(queue)
    print(f"kills {nemesis.kills}, stops {nemesis.stops}, rows lost by their leases {nemesis.lost:.0f}")


def check_end(queue: Queue) -> None:
    assert queue.leases() == 0
    assert set(queue.counts()) == {"done"}
    assert queue.value("select count(*) from search_outbox_events where owner is not null") == 0
