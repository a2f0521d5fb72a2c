"""Reading a batch in parts: what one slow row costs its neighbours, in seconds of a clock that the test turns."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from unittest import mock
from uuid import UUID

import psycopg
import pytest

from outbox.policy.outcome import Reason
from outbox.ports import Document, Named
from outbox.store.documents import ViewDocuments
from outbox.store.lookup_in_parts import LookupLimits, PartwiseRead, Suspects
from tests.fixtures.events import Time

LIMITS = LookupLimits()
FOUND = Document(b"{}", 2, 1)


class Asked(NamedTuple):
    id: UUID
    entity_type: str
    entity_id: str


def batch(count: int) -> list[Asked]:
    return [Asked(UUID(int=n), "article", str(n)) for n in range(count)]


class View:
    """Takes a millisecond for a row, far too long for a slow one, and refuses a broken one at once."""

    def __init__(
        self, slow: Sequence[int] = (), broken: Sequence[int] = (), error: type[psycopg.Error] | None = None
    ) -> None:
        self.clock = Time()
        self.slow, self.broken = {str(n) for n in slow}, {str(n) for n in broken}
        self.error = error or psycopg.errors.DivisionByZero
        self.suspects = Suspects(self.clock)
        self.reads: list[int] = []

    def read(self, events: Sequence[Named], limit_ms: int) -> Mapping[UUID, Document]:
        self.reads.append(len(events))
        if any(event.entity_id in self.broken for event in events):
            raise self.error
        takes = sum(60.0 if event.entity_id in self.slow else 0.001 for event in events)
        self.clock.passes(min(takes, limit_ms / 1000))
        if takes > limit_ms / 1000:
            raise psycopg.errors.QueryCanceled
        return {event.id: FOUND for event in events}

    def look_up(self, events: Sequence[Asked]) -> tuple[PartwiseRead, float]:
        started = self.clock()
        reading = PartwiseRead(self.read, LIMITS, self.suspects, self.clock)
        reading.run(events)
        return reading, self.clock() - started


def test_ten_slow_rows_that_come_back_together_delay_their_batch_no_longer_than_one_and_have_turns() -> None:
    slow = list(range(0, 500, 50))
    view = View(slow)
    for number in slow:
        view.suspects.add(batch(500)[number])
    left, rounds = batch(500), 0
    while left:
        reading, seconds = view.look_up(left)
        assert seconds < 4
        assert reading.blamed, "at least one has its turn"
        left = [event for event in left if event.id not in reading.found and event.id not in reading.blamed]
        assert all(event.entity_id in view.slow for event in left)
        rounds += 1
    assert rounds == 10


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (psycopg.errors.DivisionByZero, Reason.DETERMINISTIC),
        (psycopg.errors.CheckViolation, Reason.DETERMINISTIC),
        (psycopg.errors.StatementTooComplex, Reason.UNKNOWN),
        (psycopg.errors.DataCorrupted, Reason.UNKNOWN),
        (psycopg.errors.OutOfMemory, Reason.UNKNOWN),
    ],
)
def test_a_row_that_breaks_a_read_is_blamed_by_its_class(error: type[psycopg.Error], reason: Reason) -> None:
    reading, _ = View(broken=[3], error=error).look_up(batch(20))
    assert {id.int: failure.reason for id, failure in reading.blamed.items()} == {3: reason}
    assert len(reading.found) == 19


@pytest.mark.parametrize("slow", [0, 217, 499])
def test_one_slow_row_of_500_is_found_in_three_steps_and_all_others_are_read(slow: int) -> None:
    reading, seconds = View([slow]).look_up(batch(500))
    assert set(reading.blamed) == {UUID(int=slow)}
    assert len(reading.found) == 499
    assert seconds < 13.6


def test_a_slow_row_that_comes_back_is_read_apart_and_delays_its_batch_by_its_own_time_only() -> None:
    view = View([7])
    view.look_up(batch(500))
    view.reads.clear()
    reading, seconds = view.look_up(batch(500))
    assert view.reads == [499, 1]
    assert (len(reading.found), set(reading.blamed)) == (499, {UUID(int=7)})
    assert seconds == pytest.approx(3.5, abs=0.1)


def test_what_is_no_rows_fault_is_passed_on() -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        View(broken=[3], error=psycopg.errors.InsufficientPrivilege).look_up(batch(20))


def test_the_time_of_a_whole_read_that_fails_counts_for_its_parts() -> None:
    """The daemon reads a batch whole before it makes parts of it; all of it has to stay below the lease."""
    view = View(range(0, 500, 3))
    documents = ViewDocuments(mock.Mock(), "v", batch_bytes=8_388_608, clock=view.clock)
    documents._suspects = view.suspects
    started = view.clock()
    with (
        mock.patch.object(documents, "_named", lambda events: (events, {})),
        mock.patch.object(documents, "_read", lambda part, limit_ms, _: view.read(part, limit_ms)),
        mock.patch.object(documents, "_finds_blamed", return_value=True),
    ):
        documents._load(batch(500), whole=False)
    assert view.reads[0] == 500
    assert view.clock() - started <= LIMITS.budget_seconds
