"""What only a person can fix, under load: no attempt spent, no row failed, paused soon, going again soon after."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.elasticsearch import INDEX_SETTINGS
from tests.fixtures.metrics import metric, ready
from tests.fixtures.processes import StartProcess, find_free_port, http_get
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long  # test_survival.py is the daily drill; these are its full lengths and causes apart

PAUSED_WITHIN = 5.0
GOING_WITHIN = 10.0


@dataclass
class Fault:
    cause: str
    breaks: Callable[["BlockableSink"], None]
    fixes: Callable[["BlockableSink"], None]


@dataclass
class BlockableSink:
    es: Elasticsearch
    index: str

    def set_block(self, on: bool) -> None:
        self.es.indices.put_settings(index=self.index, settings={"index.blocks.write": on})

    def remove(self) -> None:
        """As `outbox index create` leaves it: a name that Elasticsearch may not create by itself."""
        self.es.indices.put_index_template(
            name=self.index, index_patterns=[self.index], allow_auto_create=False, priority=900
        )
        self.es.indices.delete(index=self.index)

    def close_index(self) -> None:
        self.es.indices.close(index=self.index)

    def open_index(self) -> None:
        self.es.indices.open(index=self.index)

    def create(self) -> None:
        self.es.indices.create(index=self.index, settings=INDEX_SETTINGS)


# A wrong key: test_search_logins.py.
FAULTS = [
    Fault("es_index_missing", lambda s: s.remove(), lambda s: s.create()),
    Fault("es_blocked", lambda s: s.set_block(True), lambda s: s.set_block(False)),
    Fault("es_config", lambda s: s.close_index(), lambda s: s.open_index()),
]


@pytest.fixture
def sink(es: Elasticsearch, index: str) -> Iterator[BlockableSink]:
    yield BlockableSink(es, index)
    es.options(ignore_status=404).indices.delete_index_template(name=index)


class Load:
    """Commits a few rows whenever it is called, as producers do all the while."""

    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.produced = 0

    def and_look(self, look: Callable[[], object]) -> Callable[[], object]:
        def produce_and_look() -> object:
            self.queue.produce_many(50, entity_type=f"t{self.produced}")
            self.produced += 50
            return look()

        return produce_and_look


@pytest.mark.parametrize("fault", FAULTS, ids=["index missing", "write block", "closed index"])
def test_a_systemic_fault_pauses_costs_nothing_and_ends_with_its_cause(
    queue: EventTable, start_daemon: StartProcess, sink: BlockableSink, fault: Fault
) -> None:
    load = Load(queue)
    daemon = start_daemon(ELASTIC_INDEX=sink.index)
    eventually(load.and_look(lambda: queue.counts().get("done", 0) > 200), within=60, every=0.1, what="work under way")

    fault.breaks(sink)
    began = time.monotonic()
    eventually(
        load.and_look(lambda: metric(daemon, "outbox_paused", cause=fault.cause) > 0),
        within=30,
        every=0.05,
        what=f"a pause for {fault.cause}",
    )
    paused_after = time.monotonic() - began
    told = daemon.wait_for_fact("sink.paused", reason=fault.cause)
    status, readiness = ready(daemon)
    assert (status, readiness["status"]) == (200, "degraded")
    assert fault.cause in readiness["checks"]["paused"]["detail"]
    assert told["error"]
    for _ in range(20):
        load.and_look(lambda: None)()
    assert http_get(daemon.metrics_url + "/healthz")[0] == 200

    fault.fixes(sink)
    began = time.monotonic()
    done = queue.counts().get("done", 0)
    eventually(load.and_look(lambda: queue.counts().get("done", 0) > done), within=40, every=0.05, what="work again")
    going_after = time.monotonic() - began
    daemon.wait_until(lambda: set(queue.counts()) == {"done"}, "everything done", within=60)
    assert queue.counts() == {"done": load.produced}
    assert queue.value("select max(attempts) from search_outbox_events") == 1, "no attempt was counted"
    assert queue.value("select count(*) from search_outbox_attempts") == 0
    assert metric(daemon, "outbox_paused") == 0
    assert daemon.facts("sink.resumed")
    assert paused_after <= PAUSED_WITHIN
    assert going_after <= GOING_WITHIN
    assert daemon.terminate() == 0


def test_under_pause_an_outage_of_a_minute_leaves_all_attempts_unchanged(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(3_000)
    with proxy_to(elastic_url) as (proxy, url):
        proxy.slow(0.1)
        daemon = start_daemon(ELASTIC_URL=url, OUTBOX_OUTAGE_POLICY="pause")
        daemon.wait_until(lambda: queue.counts().get("done", 0) > 0, "work to begin", within=60)
        proxy.cut()
        began = time.monotonic()
        daemon.wait_until(lambda: metric(daemon, "outbox_paused", cause="connect") > 0, "the breaker")
        eventually(lambda: time.monotonic() - began > 60, within=65)
        assert queue.value("select count(*) from search_outbox_events where status = 'pending' and attempts > 0") == 0
        assert "failed" not in queue.counts()
        proxy.heal()
        daemon.wait_until(lambda: queue.counts() == {"done": 3_000}, "everything done", within=60)
        assert queue.value("select max(attempts) from search_outbox_events") == 1
        assert daemon.terminate() == 0


def test_under_pause_a_daemon_that_starts_without_elasticsearch_waits_and_spends_nothing(
    queue: EventTable, start_daemon: StartProcess, elastic_url: str
) -> None:
    queue.produce_many(100)
    daemon = start_daemon(ELASTIC_URL=f"http://127.0.0.1:{find_free_port()}", OUTBOX_OUTAGE_POLICY="pause")
    daemon.wait_for_fact("sink.paused", within=60)
    assert queue.value("select max(attempts) from search_outbox_events where status = 'pending'") == 0
    assert daemon.terminate() == 0
