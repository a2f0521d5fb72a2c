"""One lane step by step, on a queue and a sink in memory: what it does next, and that no fault ends it."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from outbox import fast_path
from outbox.daemon.claiming import Kinds
from outbox.daemon.gate import EVERYTHING
from outbox.errors import DatabaseDown
from outbox.facts import NoProgress, SinkPaused, SinkResumed
from outbox.fast_path import Sendable
from outbox.policy.backoff import Backoff
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import RetryPolicy
from outbox.ports import BulkAction, NewerDelete, Settled, WriteReport
from tests.fakes import MemoryEvents
from tests.fixtures.inprocess import INDEX, InProcess, Parts
from tests.fixtures.sinks import MemorySink

AWAY = Failure(Reason.CONNECT, "nobody there", whole=True)
BLOCKED = Failure(Reason.ES_BLOCKED, "a write block", whole=True)
COUNT = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=True)
PAUSE = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=False)


class MoodySink(MemorySink):
    """`systemic`: every write meets it. `probed`: what a probe says, apart from what writes meet."""

    systemic: Failure | None = None
    probed: Failure | None = None

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        if self.systemic is not None:
            return WriteReport([self.systemic] * len(actions))
        return super().write(actions, deadline_seconds)

    def probe(self, target: str) -> Failure | None:
        return self.probed


class Memory:
    """A lane and all that it touches."""

    patch: pytest.MonkeyPatch

    def __init__(self, retry: RetryPolicy = COUNT, kinds: Kinds | None = None) -> None:
        self.events = MemoryEvents()
        self.queue = self.events.queue
        self.sink = MoodySink()
        self.worker = InProcess(Parts(self.events, self.sink, retry=retry, kinds=kinds or Kinds()))
        self.lane, self.gate, self.clock = self.worker.lane, self.worker.gate, self.worker.clock

    def produce(self, n: int = 1, **values: object) -> None:
        for number in range(n):
            self.queue.produce(str(len(self.queue.rows) + number), **values)  # type: ignore[arg-type]

    def statuses(self) -> set[str]:
        return {row.status for row in self.queue.rows.values()}

    def steps(self, n: int, seconds: float = 1.0) -> None:
        for _ in range(n):
            self.lane.step()
            self.clock.passes(seconds)


@pytest.fixture
def memory() -> Memory:
    return Memory()


def test_an_idle_lane_rests_longer_and_longer_up_to_the_poll_interval(memory: Memory) -> None:
    rests = [memory.lane.step() for _ in range(12)]
    assert 0.007 < rests[0] < 0.013
    assert all(0.375 <= rest <= 0.625 for rest in rests[7:])
    memory.produce()
    memory.lane.step()
    assert memory.lane.step() < 0.02


def test_under_count_an_outage_slows_the_lane_down_and_touches_one_batch_per_wait(memory: Memory) -> None:
    memory.produce(5_000)
    memory.sink.away = AWAY
    rests = [memory.lane.step() for _ in range(6)]
    for rest, ceiling in zip(rests, [1, 2, 4, 8, 10, 10], strict=True):
        assert ceiling / 2 <= rest <= ceiling
    assert sum(row.attempts for row in memory.queue.rows.values()) == 6 * 500
    memory.sink.away = None
    assert memory.lane.step() == 0.0


def test_under_pause_an_outage_spends_nothing_and_stops_all_claims_until_a_probe_and_a_row_got_through() -> None:
    memory = Memory(PAUSE)
    memory.produce(2_000)
    memory.sink.away = memory.sink.probed = AWAY
    memory.steps(60)
    assert memory.gate.snapshot() == {EVERYTHING: "connect"}
    assert {row.attempts for row in memory.queue.rows.values()} == {0}
    memory.sink.away = memory.sink.probed = None
    memory.steps(10)
    assert memory.statuses() == {"done"}
    assert {row.attempts for row in memory.queue.rows.values()} == {1}
    assert [type(f) for f in memory.worker.facts if isinstance(f, SinkPaused | SinkResumed)] == [
        SinkPaused,
        SinkResumed,
    ]


def test_a_systemic_refusal_pauses_the_target_gives_all_back_and_resumes_without_help(memory: Memory) -> None:
    memory.produce(2_000)
    memory.sink.systemic = memory.sink.probed = BLOCKED
    memory.steps(60)
    assert memory.gate.snapshot() == {INDEX: "es_blocked"}
    assert {row.attempts for row in memory.queue.rows.values()} == {0}
    memory.sink.systemic = memory.sink.probed = None
    memory.steps(10)
    assert memory.statuses() == {"done"}


def cut_short(memory: Memory, error: DatabaseDown) -> None:
    """A batch whose lane meets this."""

    def meet(_: BulkAction) -> None:
        raise error

    memory.produce(3)
    memory.sink.refuse = meet
    memory.lane.step()
    memory.sink.refuse = lambda _: None
    assert memory.statuses() == {"processing"}


def test_a_batch_that_may_have_broken_its_session_waits_for_the_end_of_its_lease(memory: Memory) -> None:
    """A document that ends the server's process would end the next one at once."""
    cut_short(memory, DatabaseDown("server closed the connection unexpectedly"))
    memory.steps(3)
    assert memory.statuses() == {"processing"}


# Batches of which nothing comes


def two_clocks(memory: Memory) -> None:
    """A claim is dated by another clock than the one that its lease is counted by."""
    memory.worker.claimer.boot_clock = lambda: memory.clock() - 1_000.0


def all_lost(memory: Memory) -> None:
    """Everything is sent, and others have the rows by the time of the settle."""
    memory.events.settle = lambda _, settlements, drawn=None: Settled(0, [id for id, _ in settlements])  # type: ignore


def error(memory: Memory) -> None:
    def broken(*_: object) -> dict[UUID, NewerDelete]:
        raise ZeroDivisionError("a bug")

    memory.events.newer_deletes = broken  # type: ignore[method-assign, assignment]


def nothing_prepared(memory: Memory) -> None:
    """A bug that leaves every event out."""
    memory.patch.setattr(fast_path, "sort_out", lambda *_: (Sendable([], [], [], []), []))


@pytest.mark.parametrize(
    ("cause", "reason", "detail"),
    [
        (two_clocks, "lease_short", "-940.0 s of its lease of 60 s were left"),
        (all_lost, "lease_lost", "all of its rows were taken by others before it was settled"),
        (error, "error", "ZeroDivisionError: a bug"),
        (nothing_prepared, "unknown", "nothing of it was sent, and no event of it got a verdict"),
    ],
    ids=["two clocks", "all lost", "error", "unknown"],
)
def test_a_lane_that_makes_no_progress_rests_longer_each_time_and_says_why(
    cause: Callable[[Memory], None], reason: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory()
    memory.patch = monkeypatch
    memory.produce(3, age_seconds=60)  # so that newer deletes are checked for
    cause(memory)
    rests = []
    for _ in range(6):
        rests.append(memory.lane.step())
        memory.clock.passes(3)  # the next claim starts from the lowest row again
        for token in list(memory.queue.leases):  # what an error left behind its lease is taken back
            memory.queue.take_back(token, dead=False)
    for rest, ceiling in zip(rests, [1, 2, 4, 8, 10, 10], strict=True):
        assert ceiling / 2 <= rest <= ceiling
    found = memory.worker.of(NoProgress)
    assert [fact.in_a_row for fact in found] == [1, 2, 3, 4, 5, 6]
    assert [fact.wait_seconds for fact in found] == rests
    assert {(fact.reason, fact.detail) for fact in found} == {(reason, detail)}
