"""One shard of the real search server is down: what belongs to it waits, everything else goes on."""

import time

import pytest
from elasticsearch import Elasticsearch

from outbox.policy.backoff import Backoff
from outbox.policy.outcome import Failure, Written
from outbox.policy.settle import RetryPolicy
from outbox.ports import BulkAction
from outbox.sink.bulk import SHARD_WAIT_SECONDS
from tests.fixtures.elasticsearch import INDEX_SETTINGS
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import elastic_sink
from tests.fixtures.waiting import eventually

BATCH = 10
STARTED = "STARTED"


@pytest.fixture
def half_red_index(es: Elasticsearch, absent_index: str) -> str:
    """Two shards, of which this one node may hold one."""
    settings = {**INDEX_SETTINGS, "number_of_shards": 2, "routing.allocation.total_shards_per_node": 1}
    es.indices.create(index=absent_index, settings=settings, wait_for_active_shards="0")
    eventually(lambda: STARTED in states_of(es, absent_index), what="the one shard that may start")
    return absent_index


def states_of(es: Elasticsearch, index: str) -> list[str]:
    return [copy["state"] for copies in es.search_shards(index=index)["shards"] for copy in copies]


def routing_of(es: Elasticsearch, index: str, *, red: bool) -> str:
    """A routing value whose shard is down, or there."""
    places = ((str(n), es.search_shards(index=index, routing=str(n))["shards"][0]) for n in range(100))
    return next(value for value, copies in places if red != any(copy["state"] == STARTED for copy in copies))


def test_events_of_a_shard_that_is_down_let_those_behind_them_pass_under_pause(
    queue: EventTable, es: Elasticsearch, elastic_url: str, half_red_index: str
) -> None:
    away, there = (routing_of(es, half_red_index, red=red) for red in (True, False))
    queue.produce_many(BATCH, routing=away)
    queue.produce_many(2 * BATCH, "block", routing=there)
    retry = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=False)
    with elastic_sink(elastic_url) as sink:
        worker = InProcess(Parts(queue.store(), sink, index_of=lambda _: half_red_index, retry=retry))
        for _ in range(8):  # three on a machine that has time; what waits is due again after five seconds
            worker.run(BATCH, retry_limit=BATCH // 2)
            if queue.counts().get("done") == 2 * BATCH:
                break
    assert queue.counts() == {"pending": BATCH, "done": 2 * BATCH}
    waiting = queue.rows("status = 'pending'")
    assert {(row.attempts, row.error_reason) for row in waiting} == {(0, "es_5xx")}
    assert all(row.next_retry_at is not None for row in waiting)


def test_a_shard_that_is_known_to_be_down_keeps_nobody_waiting(
    es: Elasticsearch, elastic_url: str, half_red_index: str
) -> None:
    """Its events come back every few seconds, each time in a request with others."""
    away, there = (routing_of(es, half_red_index, red=red) for red in (True, False))
    with elastic_sink(elastic_url) as sink:
        took = []
        for version in (1, 2):
            routings = {"a": away, "b": there}.items()
            began = time.monotonic()
            report = sink.write([BulkAction(half_red_index, id, version, where, b"{}") for id, where in routings], 20.0)
            took.append(time.monotonic() - began)
            assert [type(outcome) for outcome in report.outcomes] == [Failure, Written]
        assert sink.shard_wait_seconds("another") == SHARD_WAIT_SECONDS
    assert took[0] > SHARD_WAIT_SECONDS / 2 > took[1], "Elasticsearch's timer may end a little early"
