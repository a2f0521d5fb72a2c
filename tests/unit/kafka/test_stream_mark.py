"""With Kafka nothing is judged before the records that may have made a doubt are settled, and nobody waits for ever."""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outbox.errors import StreamDown
from outbox.kafka import capture_wait
from outbox.kafka.settle_wait import StreamMark
from outbox.ops import status
from outbox.policy.drift import DriftReport
from outbox.ports import Captured, PartitionOffsets, StreamOffsets
from outbox.reindex.mismatches import WAITS_SECONDS
from outbox.reindex.rebuild_steps import Choices, RebuildSteps
from outbox.store.event_log import PostgresCapture
from tests.unit.ops.test_rechecks import SAME, WRONG, Bench


class Moving:
    """A topic that grows by one record at each reading, and a group that settles `speed` records meanwhile."""

    topic, group = "events", "search"

    def __init__(self, end: int, speed: int, down: bool = False) -> None:
        self.end, self.committed, self.speed, self.down = end, 0, speed, down
        self.readings = 0

    def read(self) -> Sequence[PartitionOffsets]:
        if self.down:
            raise StreamDown("no broker")
        self.readings += 1
        found = PartitionOffsets(0, 0, self.end, self.committed)
        self.committed, self.end = min(self.committed + self.speed, self.end), self.end + 1
        return [found]


def mark_of(offsets: Moving, patience: float = 0.05) -> StreamMark:
    return StreamMark(cast(StreamOffsets, offsets), patience)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "CHECK_SECONDS", 0.001)


def test_it_waits_for_what_was_there_and_not_for_what_comes_later() -> None:
    mark = mark_of(offsets := Moving(10, 4), patience=5.0)
    assert mark.passed()
    assert offsets.committed >= 10
    assert mark.late == ""


@pytest.mark.parametrize(
    ("offsets", "words"), [(Moving(10, 0), "not settled within"), (Moving(1, 1, down=True), "no broker")]
)
def test_daemons_that_do_not_get_there_are_said_and_not_waited_for_twice(offsets: Moving, words: str) -> None:
    mark = mark_of(offsets)
    assert not mark.passed()
    assert words in mark.late
    offsets.down, offsets.speed = False, 1000
    assert mark.passed()
    assert mark.late == ""


class Reading:
    """A connector that confirms `speed` bytes between two readings; the database goes on writing."""

    slot = "shop_log"

    def __init__(self, speed: int, offsets: Moving, *, active: bool = True) -> None:
        self.end, self.confirmed, self.speed, self.active = 1000, 900, speed, active
        self.offsets = offsets

    def read(self) -> Captured:
        found = Captured(self.end, self.confirmed, self.active, False)
        self.confirmed, self.end = min(self.confirmed + self.speed, self.end), self.end + 10
        self.offsets.end += 1 if self.speed else 0
        return found


def test_a_stopped_connector_is_named_and_waited_for_once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_wait, "STOPPED_SECONDS", 0.05)
    offsets = Moving(10, 1000)
    log = Reading(0, offsets, active=False)
    mark = StreamMark(cast(StreamOffsets, offsets), 5.0, cast(PostgresCapture, log))
    assert not mark.passed()
    assert "the connector is stopped (slot shop_log is not in use), and 100 B" in mark.late
    assert offsets.readings == 0, "what the topic holds says nothing then"


@pytest.mark.parametrize("arrived", [True, False])
def test_what_is_the_same_after_everything_arrived_is_drift_and_what_may_be_on_its_way_never_is(arrived: bool) -> None:
    order: list[str] = []
    bench = Bench((order.append("check") or SAME for _ in count()), arrived=lambda: order.append("wait") or arrived)
    bench.add()
    bench.doubts.drain()
    assert (bench.certain, len(bench.flux)) == (([WRONG], 0) if arrived else ([], 1))
    assert order == ["wait", "check"] * (1 if arrived else len(WAITS_SECONDS))


def test_a_rebuild_is_not_swapped_on_what_could_not_be_judged() -> None:
    steps = cast(RebuildSteps, SimpleNamespace(choices=Choices()))
    found = cast(Any, SimpleNamespace(report=DriftReport(in_flux=3)))
    assert RebuildSteps._acceptable(steps, found), "what waits in the table is written to both indexes"
    found.report.unjudged = 1
    assert not RebuildSteps._acceptable(steps, found)
