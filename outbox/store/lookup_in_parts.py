"""Reads a batch from the view in parts where it cannot be read whole, and finds the rows at fault. Knows no SQL."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import psycopg

from outbox.errors import DatabaseDown
from outbox.policy.document import refused
from outbox.policy.outcome import Code, Failure, Reason
from outbox.ports import Clock, Document, Named

# What one row can do: 22 and 23 its values (a domain has checks), 21 a subquery that finds two rows, P0, 38, 39 and 2F
# what a function raises.
OF_ONE_ROW: Final = ("22", "23", "21", "P0", "38", "39", "2F")
# What one row can do, and many can too: 54 a limit of the program, XX a damaged page, 53200 memory, 53400 temporary
# files.
OVERTAXED: Final = ("54", "XX", "53200", "53400")
TIMED_OUT: Final = "57014"

# Eight parts at a time find one row of 500 in three steps; halves need nine, and each step costs a time limit.
PARTS: Final = 8
# Rows that are read alone before the parts: where none of them can be, it is the view that is slow.
SAMPLE: Final = 3
SUSPECTS_KEPT: Final = 1_000
SUSPECT_SECONDS: Final = 1_800.0  # longer than the longest wait for a retry

Read = Callable[[Sequence[Named], int], Mapping[UUID, Document]]
NOT_READ: Final = Failure(
    Reason.DOCUMENTS_UNAVAILABLE, "the time for lookups was used up by slow documents of the view before this one"
)


class LookupLimits(NamedTuple):
    """How long reads of the view may take. All of it stays well below a lease of 60 s, which is renewed meanwhile."""

    whole_ms: int = 10_000  # a batch that takes longer is read in parts
    part_ms: int = 1_000
    alone_ms: int = 3_000  # a row that was too slow before, read apart from its batch
    budget_seconds: float = 30.0
    suspects_seconds: float = 3.0  # for all such rows of one batch: its other rows wait for them


class Suspects:
    """Entities that were too slow lately: they are read apart, so that they cost their batches no search. Lanes share
    them; single operations of a dict are safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.until: dict[tuple[str, str], float] = {}

    def has(self, event: Named) -> bool:
        until = self.until.get((event.entity_type, event.entity_id))
        return until is not None and until > self._clock()

    def add(self, event: Named) -> None:
        if len(self.until) >= SUSPECTS_KEPT:
            self.until = {}
        self.until[(event.entity_type, event.entity_id)] = self._clock() + SUSPECT_SECONDS

    def clear(self, event: Named) -> None:
        self.until.pop((event.entity_type, event.entity_id), None)


class PartwiseRead:
    """One batch. `found` has what was read, `blamed` what cannot be; whoever is in neither was not read in time."""

    def __init__(self, read: Read, limits: LookupLimits, suspects: Suspects, clock: Clock) -> None:
        self._read = read
        self._limits = limits
        self._suspects = suspects
        self._clock = clock
        self._until = clock() + limits.budget_seconds
        self.found: dict[UUID, Document] = {}
        self.blamed: dict[UUID, Failure] = {}
        self.hopeless = False  # none of a sample could be read: whatever is blamed now is not at fault
        self.last_error: Exception | None = None  # of a read that took too much

    def run(self, events: Sequence[Named], failed: Exception | None = None) -> None:
        """`failed`: all of them were read at once, and met this."""
        suspected = [event for event in events if self._suspects.has(event)]
        apart = {event.id for event in suspected}
        rest = [event for event in events if event.id not in apart] if suspected else events
        if rest:
            self._search(rest, failed)
        if not self.hopeless:
            self._one_by_one(suspected)

    def _search(self, events: Sequence[Named], failed: Exception | None) -> None:
        """Breadth first: parts without a slow row are read before those with one are split further."""
        whole_ms = self._limits.whole_ms
        parts = deque(self._met(failed, events, whole_ms) if failed else self._tried(events, whole_ms))
        if self.last_error is not None and parts:
            self._try_a_sample(events)
        while parts and self._in_time(self._limits.part_ms) and not self.hopeless:
            part = [each for each in parts.popleft() if each.id not in self.found and each.id not in self.blamed]
            if part:
                parts.extend(self._tried(part, self._limits.part_ms))

    def _try_a_sample(self, events: Sequence[Named]) -> None:
        """Tells a view without its index from a slow row. Blamed rows stay suspects: the next sample is another one."""
        if len(events) <= SAMPLE:
            return
        last = len(events) - 1
        sample = [events[place * last // (SAMPLE - 1)] for place in range(SAMPLE)]
        for event in sample:
            self._tried([event], self._limits.part_ms)
        self.hopeless = all(self._suspects.has(event) for event in sample)

    def _one_by_one(self, events: Sequence[Named]) -> None:
        """At least one of them in each batch: whoever is not read now is released, and comes again."""
        until = self._clock() + self._limits.suspects_seconds
        for event in events:
            if not self._in_time(self._limits.alone_ms) or self._clock() >= until:
                return
            self._tried([event], self._limits.alone_ms)
            if event.id in self.found:
                self._suspects.clear(event)

    def _tried(self, events: Sequence[Named], limit_ms: int) -> list[Sequence[Named]]:
        """The parts that are to be read instead; none where it was read, or one row is blamed."""
        try:
            self.found.update(self._read(events, limit_ms))
        except (psycopg.Error, DatabaseDown) as error:
            return self._met(error, events, limit_ms)
        return []

    def _met(self, error: Exception, events: Sequence[Named], limit_ms: int) -> list[Sequence[Named]]:
        state = _state(error)
        if not state.startswith((*OF_ONE_ROW, *OVERTAXED, TIMED_OUT)):
            raise error
        if not state.startswith(OF_ONE_ROW):
            self.last_error = error
        if len(events) > 1:
            size = -(-len(events) // PARTS)
            return [events[start : start + size] for start in range(0, len(events), size)]
        self._blame(events[0], state, error, limit_ms)
        return []

    def _blame(self, event: Named, state: str, error: Exception, limit_ms: int) -> None:
        if state.startswith(OF_ONE_ROW):
            told = f"the view cannot compute this entity's document: {_named(error)}"
            self.blamed[event.id] = refused(told, Code.PAYLOAD_INVALID)
            return
        self._suspects.add(event)
        self.blamed[event.id] = _slow(limit_ms) if state == TIMED_OUT else _overtaxing(error)

    def _in_time(self, limit_ms: int) -> bool:
        """A read that could not have its whole time would blame a row for it."""
        return self._clock() + limit_ms / 1000 <= self._until


def _state(error: Exception) -> str:
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else ""


def _named(error: Exception) -> str:
    """The server's message could quote the row, so only its class is reported."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return f"SQLSTATE {_state(error)}, {type(cause).__name__}"


def _slow(limit_ms: int) -> Failure:
    return Failure(
        Reason.TIMEOUT,
        f"the view took over {limit_ms / 1000:g} s for this entity's document alone; make it quicker for this row"
        " (explain analyze shows where its time goes), then replay the event",
    )


def _overtaxing(error: Exception) -> Failure:
    return Failure(
        Reason.UNKNOWN,
        f"PostgreSQL cannot compute this entity's document: {_named(error)}; its log says more."
        " Fix the row or the view, then replay the event",
    )
