"""One batch through the projector, on a queue and a sink in memory: every event gets exactly one verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox import fast_path
from outbox.errors import DatabaseDown, DocumentsUnavailable
from outbox.facts import AttemptFailed, BrakeOn, LeaseLost
from outbox.policy.backoff import Backoff
from outbox.policy.outcome import WRITTEN, Code, Failure, Outcome, Reason, Stale
from outbox.policy.settle import RetryPolicy
from outbox.ports import BulkAction, Document, Named, NewerDelete, WriteReport
from tests.fakes import FakeRow, MemoryEvents, MemoryQueue
from tests.fixtures.events import BODY
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.sinks import MemorySink

REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "no", Code.PAYLOAD_INVALID, "f1")
BUSY = Failure(Reason.ES_429, "busy")
AWAY = Failure(Reason.CONNECT, "away", whole=True)
BLOCKED = Failure(Reason.ES_BLOCKED, "block", whole=True)


class Spy(MemorySink):
    """Keeps what was sent, request by request; `script` answers some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[BulkAction]] = []
        self.script: list[WriteReport | None] = []
        self.cut = False  # a script's answer is longer than its request
        self.before: Callable[[], object] = lambda: None

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        self.sent.append(list(actions))
        self.before()
        answer = self.script.pop(0) if self.script else None
        if answer is not None and self.cut:
            answer = replace(answer, outcomes=list(answer.outcomes)[: len(actions)])
        return super().write(actions, deadline_seconds) if answer is None else answer


class Memory:
    def __init__(self, **parts: object) -> None:
        self.events = MemoryEvents()
        self.queue = self.events.queue
        self.sink = Spy()
        self.worker = InProcess(Parts(self.events, self.sink, **parts))  # type: ignore[arg-type]
        self.run = self.worker.run
        self.produce = self.queue.produce

    def row(self, id: UUID) -> FakeRow:
        return self.queue.rows[id]

    def status(self, *ids: UUID) -> list[str]:
        return [self.row(id).status for id in ids]

    def version(self, entity: str) -> int | None:
        found = self.sink.documents.get(("articles", f"article:{entity}"))
        return None if found is None else found[0]

    def refuse_version(self, *versions: int, failure: Failure = REFUSED) -> None:
        self.sink.refuse = lambda action: failure if action.version in versions else None


@pytest.fixture(params=["fresh", "replayed"])
def memory(request: pytest.FixtureRequest) -> Memory:
    """A plain batch is sent as it came; one that may be out of order is checked for newer deletes, delivery by
    delivery."""
    made = Memory()
    if request.param == "replayed":
        made.produce = partial(made.queue.produce, replay_count=1)
    return made


# Coalescing


def test_of_one_document_only_the_newest_event_is_sent_and_the_older_ones_are_superseded(memory: Memory) -> None:
    ids = [memory.produce("a", event_version=version) for version in (2, 5, 3)]
    memory.run()
    assert [action.version for action in memory.sink.sent[0]] == [5]
    assert memory.status(*ids) == ["done"] * 3
    assert (memory.worker.last.done, memory.worker.last.superseded) == (3, 2)


def test_the_older_ones_go_back_with_their_attempt_when_the_newest_is_to_be_tried_again(memory: Memory) -> None:
    older, newest = memory.produce("a", event_version=1), memory.produce("a", event_version=2)
    memory.refuse_version(2, failure=BUSY)
    memory.run()
    assert memory.status(older, newest) == ["pending", "pending"]
    assert (memory.row(older).attempts, memory.row(newest).attempts) == (0, 1)
    memory.run()
    assert memory.version("a") == 1


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.sampled_from(["ok", "no", "busy"])), max_size=25)
)
def test_whatever_is_refused_the_index_ends_with_the_newest_good_event(steps: list[tuple[str, int, str]]) -> None:
    """Versions of one entity differ, as the contract asks."""
    seen: dict[tuple[str, int], str] = {}
    for entity, version, fate in steps:
        seen.setdefault((entity, version), fate)
    memory = Memory()
    fates = {f"article:{entity}|{version}": fate for (entity, version), fate in seen.items()}
    answers = {"ok": None, "no": REFUSED, "busy": BUSY}
    memory.sink.refuse = lambda action: answers[fates[f"{action.id}|{action.version}"]]
    for entity, version in seen:
        memory.produce(entity, event_version=version)
    for _ in range(len(seen) + 1):
        memory.run()
    for entity in "ab":
        good = [version for (e, version), fate in seen.items() if e == entity and fate == "ok"]
        assert memory.version(entity) == (max(good) if good else None)
    for row in memory.queue.rows.values():
        fate = seen[(row.event.entity_id, row.event.event_version)]
        if fate == "no":
            assert row.status in ("failed", "done")  # done: a newer one was there first
        assert row.status != "processing"


# Time


def test_a_batch_past_half_of_max_processing_gives_back_what_it_has_not_sent(memory: Memory) -> None:
    memory.worker.projector.portion_bytes = 1
    ids = [memory.produce(str(number)) for number in range(3)]
    write = memory.sink.write

    def slow(actions: Sequence[BulkAction], deadline: float) -> WriteReport:
        memory.worker.clock.passes(200)
        for holding in memory.worker.leases.held():
            holding.renewed(memory.worker.clock.now)
        return write(actions, deadline)

    memory.sink.write = slow  # type: ignore[method-assign,assignment]
    memory.run()
    assert memory.status(*ids) == ["done", "done", "pending"]
    assert memory.row(ids[2]).attempts == 0


def test_the_deadline_of_a_request_is_within_what_is_left_of_the_lease(memory: Memory) -> None:
    memory.produce()
    seen: list[float] = []

    def deadline(actions: Sequence[BulkAction], seconds: float) -> WriteReport:
        seen.append(seconds)
        return WriteReport([Stale(None)] * len(actions))

    memory.sink.write = deadline  # type: ignore[method-assign,assignment]
    memory.run()
    assert seen == [30.0]


# Faults


def test_an_outage_in_mid_batch_judges_what_was_sent_and_gives_back_the_rest(memory: Memory) -> None:
    memory.worker.projector.portion_bytes = 1
    ids = [memory.produce(str(number)) for number in range(4)]
    memory.sink.script = [None, WriteReport([AWAY], unreachable=AWAY)]
    report = memory.run()
    assert report is not None
    assert report.unreachable is AWAY
    assert memory.status(*ids) == ["done", "pending", "pending", "pending"]
    assert [memory.row(id).attempts for id in ids] == [1, 1, 0, 0]
    assert memory.row(ids[1]).error_reason == "connect"


def test_a_block_in_mid_batch_pauses_its_target_and_sends_no_more_to_it() -> None:
    memory = Memory(portion_bytes=1, index_of=lambda kind: kind)
    kinds = ["open", "shut", "shut", "open"]
    ids = [memory.produce(str(number), entity_type=kind) for number, kind in enumerate(kinds)]
    memory.sink.refuse = lambda action: BLOCKED if action.index == "shut" else None
    report = memory.run()
    assert report is not None
    assert report.systemic
    assert memory.status(*ids) == ["done", "pending", "pending", "done"]
    assert [action.index for request in memory.sink.sent for action in request] == ["open", "shut", "open"]
    assert memory.worker.gate.paused_targets() == {"shut"}


def test_rows_that_were_lost_are_counted_once_and_in_no_other_count(memory: Memory) -> None:
    ids = [memory.produce(str(number)) for number in range(3)]
    memory.refuse_version(3)
    claimed = memory.worker.claim()
    memory.row(ids[2]).token = None
    memory.worker.projector.project(claimed, 0)
    summary = memory.worker.last
    assert (summary.done, summary.failed, summary.lost) == (2, 0, 1)
    assert [fact.count for fact in memory.worker.of(LeaseLost)] == [1]
    assert memory.worker.of(AttemptFailed) == []


# The brake


def test_at_most_fifty_of_one_fingerprint_fail_and_the_rest_wait_a_minute_with_their_attempt(memory: Memory) -> None:
    bad = [memory.produce(f"bad{number}", entity_type="page") for number in range(80)]
    good = [memory.produce(f"good{number}") for number in range(20)]
    memory.sink.refuse = lambda action: REFUSED if action.id.startswith("page") else None
    memory.run()
    assert memory.status(*good) == ["done"] * 20
    held = [memory.row(id) for id in bad if memory.row(id).status == "pending"]
    assert memory.status(*bad).count("failed") == 50
    assert {(row.attempts, row.due_in, row.error_reason) for row in held} == {(0, 60.0, "es_rejected_document")}
    assert [fact.fingerprint for fact in memory.worker.of(BrakeOn)] == ["f1"]


# A plain batch

ANSWERS = st.sampled_from([WRITTEN, REFUSED, BUSY, BLOCKED, Stale(7)])
SHAPES = st.tuples(st.integers(1, 6), st.sampled_from(["upsert", "upsert", "upsert", "delete"]), st.booleans())


def outcome_of(age: float, shapes: list[tuple[int, str, bool]], answers: list[Outcome]) -> object:
    """What one batch comes to: all that is sent, all that is settled, and what the lane gets to know."""
    memory = Memory(portion_bytes=2_000)
    memory.worker.clock.passes(age)
    for entity, op, large in shapes:
        memory.produce(str(entity), op, payload=b'{"n":"%b"}' % (b"x" * 900) if large else BODY)
    if answers:
        memory.sink.script = [WriteReport([answers[i % len(answers)] for i in range(99)])]
        memory.sink.cut = True
    report = memory.run()
    rows = [(row.status, row.attempts, row.error_reason, row.due_in) for row in memory.queue.rows.values()]
    return memory.sink.sent, rows, report and (report.unreachable, report.systemic, report.sent, report.judged)


@given(st.lists(SHAPES, min_size=1, max_size=6), st.lists(ANSWERS, max_size=4))
def test_a_plain_batch_fares_as_one_that_is_checked_event_by_event(
    shapes: list[tuple[int, str, bool]], answers: list[Outcome]
) -> None:
    assert outcome_of(60.0, shapes, answers) == outcome_of(0.0, shapes, answers)


def test_the_second_check_for_newer_deletes_outlives_dead_connections() -> None:
    """The machine slept with the request on its way and finds its connections dead: the rows are others' by now, so
    nobody else would check."""
    memory = Memory()
    id = memory.produce("1")
    memory.sink.before = lambda: memory.worker.clock.passes(31)
    answers: list[Any] = [DatabaseDown("dead"), DatabaseDown("dead"), {id: NewerDelete(9, None)}]

    def check(*_: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    memory.events.newer_deletes = check  # type: ignore[assignment, method-assign]
    memory.run()
    assert answers == []
    again = memory.sink.sent[-1]
    assert [(action.id, action.version, action.body) for action in again] == [("article:1", 9, None)]


# A plain batch of lookups

FOUND = {
    "there": Document(BODY, len(BODY), None),
    "gone": Document(None, None, None),
    "large": Document(None, len(BODY), None),
    "elsewhere": Document(BODY, len(BODY), None, None, "there", True),
    "unreadable": Document(None, None, None, REFUSED),
}


class View:
    """What each entity is like in the view, or that the view cannot be read."""

    def __init__(self, kinds: Mapping[str, str], queue: MemoryQueue, *, away: bool) -> None:
        self.kinds, self.queue, self.away, self.reads = kinds, queue, away, 0

    def draw(self) -> int:
        self.queue.last_version += 1
        return self.queue.last_version

    def exists(self) -> bool:
        return True

    def types_in_view(self, types: Sequence[str]) -> set[str]:
        return set(types)

    def load(self, events: Sequence[Named], *, whole: bool = False) -> dict[UUID, Document]:
        self.reads += 1
        if self.away:
            raise DocumentsUnavailable("away")
        found = {event.id: FOUND[self.kinds[event.entity_id]] for event in events}
        return {id: document._replace(body=BODY) if whole else document for id, document in found.items()}


LOOKUPS = st.lists(
    st.tuples(
        st.integers(1, 6), st.sampled_from(["upsert", "refresh", "refresh", "delete"]), st.sampled_from(list(FOUND))
    ),
    min_size=1,
    max_size=6,
)


def lookups(
    shapes: list[tuple[int, str, str]],
    answers: Sequence[Outcome] = (),
    *,
    late: bool = False,
    away: bool = False,
) -> Any:
    """The same of events without payloads. `late`: so much time passes while the first request is on its way."""
    memory = Memory()
    view = View({str(entity): kind for entity, _, kind in shapes}, memory.queue, away=away)
    memory.worker = InProcess(Parts(memory.events, memory.sink, view))
    for entity, op, _ in shapes:
        memory.produce(str(entity), op, payload=None)
    if answers:
        memory.sink.script = [WriteReport([answers[i % len(answers)] for i in range(99)])]
        memory.sink.cut = True
    once = [31.0] if late else []
    memory.sink.before = lambda: memory.worker.clock.passes(once.pop() if once else 0.0)
    report = memory.worker.run()
    rows = [(row.status, row.attempts, row.error_reason, row.due_in) for row in memory.queue.rows.values()]
    known = report and (report.unreachable, report.systemic, report.sent, report.judged)
    return memory.sink.sent, rows, known, view.reads, memory.queue.last_version


BOTH = [(1, "refresh", "there"), (2, "upsert", "there")]
FLAGS = st.fixed_dictionaries({}, optional={name: st.just(True) for name in ("late", "away")})


@given(LOOKUPS, st.lists(ANSWERS, max_size=4), FLAGS)
@example(BOTH, [], {"late": True})
@example(BOTH, [], {"away": True})
@example(BOTH, [WRITTEN, Stale(7)], {})
@example([*BOTH, (3, "refresh", "elsewhere")], [], {})
@example([*BOTH, (3, "refresh", "large")], [], {})
@example([*BOTH, (3, "refresh", "gone")], [], {})
@example([*BOTH, (2, "refresh", "there")], [], {})
def test_a_batch_of_lookups_fares_as_one_that_is_checked_event_by_event(
    shapes: list[tuple[int, str, str]], answers: list[Outcome], flags: dict[str, bool]
) -> None:
    at_once = lookups(shapes, answers, **flags)
    with mock.patch.object(fast_path, "is_lookup", return_value=False):
        assert at_once == lookups(shapes, answers, **flags)


@pytest.mark.parametrize(
    ("portion_bytes", "sizes", "sent"),
    [(10_000, [2_800] * 10, [3, 3, 3, 1]), (100_000, [10, 300_000, 20], [1, 1, 1])],
    ids=["as many as fit", "a larger one alone"],
)
def test_bodies_go_out_in_portions_that_fit(
    memory: Memory, portion_bytes: int, sizes: list[int], sent: list[int]
) -> None:
    memory.worker.projector.portion_bytes = portion_bytes
    for number, size in enumerate(sizes):
        memory.produce(str(number), payload=b'{"t":"' + b"x" * size + b'"}')
    memory.run()
    assert [len(request) for request in memory.sink.sent] == sent
    assert memory.worker.last.done == len(sizes)


def test_nothing_is_sent_with_less_than_a_second_and_a_half_of_lease_left() -> None:
    memory = Memory()
    id = memory.produce(age_seconds=60)  # so it asks for newer deletes before it sends
    claimed = memory.worker.claim()
    prepare = memory.worker.projector.store.newer_deletes

    def slow(token: UUID, ids: Sequence[UUID]) -> object:
        memory.worker.clock.passes(58.6)
        return prepare(token, ids)

    memory.events.newer_deletes = slow  # type: ignore[assignment, method-assign]
    memory.worker.projector.project(claimed, 0)
    assert memory.sink.sent == []
    assert (memory.row(id).status, memory.row(id).attempts) == ("pending", 0)


def test_a_settle_is_repeated_while_the_database_is_down_and_its_lost_reply_loses_nothing(memory: Memory) -> None:
    id = memory.produce()
    memory.events.lost_replies, memory.events.lost_reply = 2, DatabaseDown("no reply")
    memory.run()
    assert memory.status(id) == ["done"]
    assert memory.worker.of(LeaseLost) == []
    assert memory.worker.last.done == 1


def test_a_row_that_has_used_up_its_attempts_fails_without_the_brake() -> None:
    memory = Memory(retry=RetryPolicy(1, Backoff(1.0, 300.0)))
    for number in range(80):
        memory.produce(str(number))
    memory.sink.refuse = lambda _: BUSY
    memory.run()
    assert memory.worker.last.failed == 80


def test_a_version_that_no_event_of_the_batch_knows_is_kept_for_a_check(memory: Memory) -> None:
    memory.produce("a", event_version=5)
    memory.sink.documents[("articles", "article:a")] = (99, b"{}")
    memory.run()
    assert [(event.entity_id, current) for event, current in memory.worker.projector.higher.ahead] == [("a", 99)]


def test_a_plain_batch_that_grew_late_on_its_way_is_checked_for_newer_deletes() -> None:
    """Half a minute between the claim and the answer: a newer delete may have been done, and forgotten, meanwhile."""
    memory = Memory()
    memory.produce("1")
    asked: list[object] = []
    memory.sink.before = lambda: memory.worker.clock.passes(31)
    memory.events.newer_deletes = lambda *named: asked.append(named) or {}  # type: ignore
    memory.run()
    assert len(asked) == 1
