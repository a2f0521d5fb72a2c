"""What every sink promises, asked of the one in memory and of the real one."""

import uuid
from collections.abc import Iterator

import pytest

from outbox.policy.outcome import MISSING, WRITTEN, Failure, Outcome, Reason, Stale
from outbox.ports import BulkAction, Sink
from tests.fixtures.sinks import MemorySink, elastic_sink


@pytest.fixture(params=["memory", "elasticsearch"])
def sink(request: pytest.FixtureRequest) -> Iterator[Sink]:
    if request.param == "memory":
        yield MemorySink(refuse=_like_elasticsearch)
    else:
        with elastic_sink(request.getfixturevalue("elastic_url")) as real:
            yield real


@pytest.fixture
def target(request: pytest.FixtureRequest, sink: Sink) -> str:
    return "things" if isinstance(sink, MemorySink) else str(request.getfixturevalue("index"))


def _like_elasticsearch(action: BulkAction) -> Failure | None:
    if action.body is not None and not action.body.strip().startswith(b"{"):
        return Failure(Reason.ES_REJECTED_DOCUMENT, "not an object")
    return None


def write(sink: Sink, *actions: BulkAction) -> list[Outcome]:
    report = sink.write(actions, 30.0)
    assert report.unreachable is None
    return list(report.outcomes)


def put(target: str, name: str, version: int, body: bytes = b"{}") -> BulkAction:
    return BulkAction(target, name, version, None, body)


def remove(target: str, name: str, version: int) -> BulkAction:
    return BulkAction(target, name, version, None, None)


def test_an_outcome_for_every_action_in_order(sink: Sink, target: str) -> None:
    write(sink, put(target, "old", 9))
    actions = [put(target, "a", 1), remove(target, "b", 1), put(target, "old", 3), put(target, "c", 1, b"[]")]
    first, second, third, fourth = write(sink, *actions)
    assert (first, second, third) == (WRITTEN, MISSING, Stale(9))
    assert isinstance(fourth, Failure)
    assert fourth.reason is Reason.ES_REJECTED_DOCUMENT


@pytest.mark.parametrize("last", ["put", "remove"])
def test_the_highest_version_wins_in_whatever_order_they_arrive(sink: Sink, target: str, last: str) -> None:
    highest = put(target, "a", 9) if last == "put" else remove(target, "a", 9)
    write(sink, put(target, "a", 2))
    write(sink, highest)
    assert write(sink, put(target, "a", 5)) == [Stale(9)]
    assert write(sink, remove(target, "a", 8)) == [Stale(9)]


def test_an_equal_version_passes_over_a_tombstone(sink: Sink, target: str) -> None:
    write(sink, remove(target, "a", 5))
    assert write(sink, put(target, "a", 5)) == [WRITTEN]
    assert write(sink, remove(target, "a", 5)) == [WRITTEN]


def test_one_bad_document_leaves_its_neighbours_written(sink: Sink, target: str) -> None:
    outcomes = write(sink, *(put(target, f"d{n}", 1, b"[]" if n == 50 else b"{}") for n in range(100)))
    assert [n for n, outcome in enumerate(outcomes) if outcome != WRITTEN] == [50]


def test_a_sink_that_is_down_says_so_for_every_action_and_raises_nothing() -> None:
    away = Failure(Reason.CONNECT, "away", whole=True)
    name = uuid.uuid4().hex
    with elastic_sink("http://127.0.0.1:9") as real:
        for sink in (MemorySink(away=away), real):
            report = sink.write([put("things", name, 1), remove("things", name, 2)], 5.0)
            assert report.unreachable is not None
            for outcome in (*report.outcomes, sink.probe("things")):
                assert isinstance(outcome, Failure)
                assert (outcome.reason, outcome.whole) == (Reason.CONNECT, True)
