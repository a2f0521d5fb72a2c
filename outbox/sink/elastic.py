"""Writes a batch to Elasticsearch: one outcome per action, whatever the server does. It never raises.

A request that fails as a whole is halved and sent again, down to the document that is the cause (`Search`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from outbox.facts import Announce, BulkSent, Unclassified, silent
from outbox.fast_path import all_written
from outbox.policy.backoff import retry_after_seconds
from outbox.policy.classify import RequestVerdict, Split, classify_request, too_large, whole
from outbox.policy.document import BATCH_BYTES
from outbox.policy.outcome import WRITTEN, Failure, FailureClass, Missing, Outcome, Reason, Stale, Written
from outbox.ports import BulkAction, Clock, WriteReport
from outbox.sink.bulk import AWAY_WAIT_SECONDS, SHARD_WAIT_SECONDS, Encoded, address, read
from outbox.sink.client import Elastic, NoReply, Reply
from outbox.sink.target_check import FRESH_SECONDS, Target, Targets

# A request that timed out may be split and sent again: the most deadlines that may pass in one write.
_PATIENCE: Final = 4
REFUSED_ALONE: Final = 3
# Some 15 seconds of a restart, after which attempts are spent: a document that brings nodes down must fail in the end.
MOST_EXCUSED: Final = 10
_MOST_COUNTED: Final = 1000  # documents
_AWAY_SECONDS: Final = 30.0  # a shard counts as down for this long after a reply said so; its events come within ten
_NAMES: Final = {Written: "written", Missing: "missing", Stale: "stale", Failure: "failed"}

# The initial value of every outcome: never seen, and never counted as done.
_FORGOTTEN: Final = whole(Reason.UNKNOWN, "no outcome for this action: a bug of ours")


@dataclass(slots=True)
class ElasticSink:
    """`ports.Sink`. A request is for one index only, so that a failure concerns one target."""

    elastic: Elastic
    batch_bytes: int = BATCH_BYTES
    batch_items: Callable[[], int] = lambda: 500  # the current adaptive limit
    announce: Announce = silent
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    targets: Targets = field(init=False)
    stubborn: Stubborn = field(init=False)
    excused: DocumentCounts = field(init=False)
    _met_away: dict[str, float] = field(default_factory=dict)  # by index: when one of its shards was last found down
    _pending: dict[object, tuple[str, float]] = field(default_factory=dict)  # requests: their index and their beginning

    def __post_init__(self) -> None:
        self.targets = Targets(self.elastic, self.clock)
        self.stubborn = Stubborn(self.batch_bytes)
        self.excused = DocumentCounts()

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        """`deadline_seconds` is each request's, connect to last byte; a write that must split takes at most four."""
        until = self.clock() + _PATIENCE * deadline_seconds
        outcomes: list[Outcome] = [_FORGOTTEN] * len(actions)
        away: Failure | None = None
        pressure = False
        for places in _by_index(actions):
            search = _Write(self, [actions[place] for place in places], deadline_seconds, until).run(away)
            _put(outcomes, places, search.outcomes)
            pressure = pressure or search.pressure
            if search.away and search.away.failure_class is FailureClass.TRANSIENT:
                away = search.away
        return WriteReport(outcomes, away, pressure)

    def probe(self, target: str) -> Failure | None:
        return self.targets.probe(target)

    def met_away(self, index: str) -> None:
        self._met_away[index] = self.clock()

    def shard_wait_seconds(self, index: str) -> float:
        """Short where a shard was found down, and where another lane may be meeting it: one of them waits, not all."""
        now = self.clock()
        slow = any(other == index and now - began > AWAY_WAIT_SECONDS for other, began in list(self._pending.values()))
        met = self._met_away.get(index, float("-inf"))
        return AWAY_WAIT_SECONDS if slow or now - met <= _AWAY_SECONDS else SHARD_WAIT_SECONDS

    @contextmanager
    def pending(self, index: str) -> Iterator[float]:
        """While a request is under way; gives the time at which it began."""
        began = self.clock()
        key = object()
        self._pending[key] = index, began
        try:
            yield began
        finally:
            del self._pending[key]

    def unknown(self, status: int, error_type: str) -> None:
        self.announce(Unclassified(status, error_type))


def _by_index(actions: Sequence[BulkAction]) -> list[Sequence[int]]:
    if len(set(map(itemgetter(0), actions))) <= 1:
        return [range(len(actions))] if actions else []
    places: dict[str, list[int]] = {}
    for place, action in enumerate(actions):
        places.setdefault(action.index, []).append(place)
    return list(places.values())


def _put(outcomes: list[Outcome], places: Sequence[int], found: Sequence[Outcome]) -> None:
    if isinstance(places, range):
        outcomes[:] = found
        return
    for place, outcome in zip(places, found, strict=True):
        outcomes[place] = outcome


@dataclass(eq=False)
class _Write:
    sink: ElasticSink
    actions: Sequence[BulkAction]
    seconds: float
    until: float
    patient: bool = False

    def __post_init__(self) -> None:
        self._index = self.actions[0].index
        self._encoded = Encoded(self.actions)
        self._target = Target()
        self._hurried = False
        self._sent = False

    def run(self, away: Failure | None) -> Search:
        search = self._search(away)
        if not all_written(search.outcomes):
            self._send_again(search)
            self._tell(search)
            self._excuse(search)
        return search

    def _search(self, away: Failure | None) -> Search:
        search = Search(
            send=self._send,
            answers=self.sink.targets.answers,
            enough=lambda: self.sink.clock() >= self.until,
            outcomes=[_FORGOTTEN] * len(self.actions),
            away=away or self._probe_target(),
        )
        search.run(self._encoded.portions(self.sink.batch_bytes, max(1, self.sink.batch_items())))
        return search

    def _send_again(self, search: Search) -> None:
        """Once more, in one request and with the whole wait, what may have failed through no fault of its own.

        Two requests may bring a new field at the same moment, one with 1 and one with 1.5: the server refuses the
        later one, which fits as soon as the mapping is made (`Dialect.new_field_waits`). A new field may also need more
        than the short wait for a shard that is down, though its own shard is there; and so may a shard whose node is
        leaving until another copy of it is the primary. The last refusal is its verdict.
        """
        late = self._hurried
        for wait in self.sink.elastic.dialect.new_field_waits:
            failures = ((place, o) for place, o in enumerate(search.outcomes) if isinstance(o, Failure))
            places = [place for place, failure in failures if failure.contested or (late and failure.late)]
            if not places:
                return
            if wait:
                self.sink.rest(wait)
            late = False
            actions = [self.actions[place] for place in places]
            again = _Write(self.sink, actions, self.seconds, self.until, patient=True)._search(search.away)
            for place, outcome in zip(places, again.outcomes, strict=True):
                search.outcomes[place] = outcome
            search.away, search.pressure = again.away, search.pressure or again.pressure

    def _probe_target(self) -> Failure | None:
        """Product and alias, queried once per process; nothing is sent to a server of another product."""
        targets = self.sink.targets
        seen = targets.seen.get(self._index)
        known = seen if seen and seen.exists else targets.known(self._index, seconds=self.seconds)
        if isinstance(known, Target) and known.alias and all(action.body is None for action in self.actions):
            # Elasticsearch creates a missing index for a bulk of deletes, whatever `require_alias` says (measured).
            known = targets.known(self._index, fresh_seconds=FRESH_SECONDS, seconds=self.seconds)
            if isinstance(known, Target) and not known.exists:
                return whole(Reason.ES_INDEX_MISSING, f"the alias [{self._index}] is gone")
        if isinstance(known, Failure):
            return known
        self._target = known
        return None

    def _send(self, start: int, stop: int) -> Answer:
        body = self._encoded.body(start, stop)
        wait = SHARD_WAIT_SECONDS if self.patient else self.sink.shard_wait_seconds(self._index)
        self._hurried = self._hurried or wait < SHARD_WAIT_SECONDS
        path = address(
            self._index, require_alias=self._target.alias, deadline_seconds=self.seconds, shard_wait_seconds=wait
        )
        self._sent = True
        with self.sink.pending(self._index) as began:
            seconds = min(self.seconds, max(self.until - began, 0.1))
            reply = self.sink.elastic.call("PUT", path, body, seconds=seconds)
        answer = self._judge(reply, start, stop)
        self._announce(answer, reply, len(body), self.sink.clock() - began)
        return answer

    def _judge(self, reply: Reply | NoReply, start: int, stop: int) -> Answer:
        if isinstance(reply, NoReply):
            broke = reply.failure.reason in (Reason.CONNECT, Reason.TIMEOUT)
            return Lost(reply.failure, reply.sent, reply.elsewhere) if broke else reply.failure
        if reply.status >= 300:
            verdict = classify_request(reply.status, reply.body, reply.headers, self.sink.unknown)
            # A date is not read: no clock of a worker decides when an event is due.
            asked = retry_after_seconds(reply.headers.get("retry-after"))
            return replace(verdict, retry_after_seconds=asked) if asked and isinstance(verdict, Failure) else verdict
        return read(reply.raw, self.actions[start:stop], self.sink.unknown)

    def _tell(self, search: Search) -> None:
        """Large documents, always alone in their request, are judged; a target that refuses is asked about later."""
        self._look_behind_blocks(search)
        for place, outcome in enumerate(search.outcomes):
            if not isinstance(outcome, Failure):
                continue
            if outcome.shard and not outcome.late:
                self.sink.met_away(self._index)
            if outcome.failure_class is FailureClass.SYSTEMIC:
                self.sink.targets.refused(self._index, outcome.reason)
            elif search.away is None:
                size = self._encoded.size(place)
                search.outcomes[place] = self.sink.stubborn.judge(self.actions[place], size, outcome)

    def _excuse(self, search: Search) -> None:
        """While one of several nodes goes or comes, a shard or the master is missing for seconds, and a read may find
        no node in time. That is no document's doing, if the reply says so or nothing was sent; a request that was lost
        may be."""
        failures = [(place, o) for place, o in enumerate(search.outcomes) if isinstance(o, Failure) and o.whole]
        nobodys = [
            (place, failure)
            for place, failure in failures
            if failure.reason is Reason.ES_5XX or (not self._sent and failure.failure_class is FailureClass.TRANSIENT)
        ]
        if not nobodys or not self.sink.elastic.is_restless():
            return
        for place, failure in nobodys:
            if self.sink.excused.add(self.actions[place]) <= MOST_EXCUSED:
                search.outcomes[place] = replace(failure, moving=True)

    def _look_behind_blocks(self, search: Search) -> None:
        """Where a template cannot forbid it, a write creates the missing index, blocked (see `Dialect.template`)."""
        blocked = [
            place for place, o in enumerate(search.outcomes) if isinstance(o, Failure) and o.reason is Reason.ES_BLOCKED
        ]
        if not blocked or self.sink.elastic.dialect.forbids_auto_create:
            return
        why = self.sink.targets.probe(self._index)
        if why is not None and why.reason is Reason.ES_INDEX_MISSING:
            for place in blocked:
                search.outcomes[place] = why

    def _announce(self, answer: Answer, reply: Reply | NoReply, size: int, took: float) -> None:
        outcomes = answer if isinstance(answer, Sequence) else ()
        # Counted apart, because nearly all are: `count` compares by identity, 0.01 us each.
        items = Counter({"written": outcomes.count(WRITTEN)})
        rest = [] if items["written"] == len(outcomes) else [o for o in outcomes if o is not WRITTEN]
        items.update(_NAMES[type(outcome)] for outcome in rest)
        failures = Counter(o.failure_class.value for o in rest if isinstance(o, Failure))
        if isinstance(answer, Sequence):
            result = "partial" if failures else "ok"
        else:
            result = "refused" if isinstance(reply, Reply) and reply.status >= 300 else "unknown"
        self.sink.announce(BulkSent(result, items, failures, size, took, self._index))


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lost:
    """No reply. `sent`: at least in part, so that a document may be the cause. `elsewhere`: a node that hangs was the
    cause, and another one gets the next request."""

    failure: Failure
    sent: bool = True
    elsewhere: bool = False


Answer = Sequence[Outcome] | RequestVerdict | Lost
Send = Callable[[int, int], Answer]


@dataclass(slots=True)
class Search:
    """One write to one index. When `run` returns, `outcomes` holds the outcome of every action."""

    send: Send
    answers: Callable[[], bool]  # does the server answer at all? Called right after a request was lost
    enough: Callable[[], bool]  # the time is over: the rest is not sent
    outcomes: list[Outcome]
    pressure: bool = False
    away: Failure | None = None

    def run(self, spans: Iterator[Span]) -> None:
        for span in spans:
            self._one(span)

    def _one(self, span: Span) -> None:
        waiting = [span]
        while waiting:
            start, stop = waiting.pop()
            halves = self._try(start, stop)
            # The left half first: events of a batch are sent in claim order if possible.
            waiting.extend(reversed(halves))

    def _try(self, start: int, stop: int) -> list[Span]:
        if stopped := self._stopped():
            return self._all(start, stop, stopped)
        answer = self.send(start, stop)
        match answer:
            case Lost():
                return self._after_loss(start, stop, answer)
            case Split():
                self.pressure = self.pressure or answer.alone.reason is Reason.TOO_LARGE
                return self._halve(start, stop, answer.alone)
            case Failure():
                return self._after_refusal(start, stop, answer)
            case _:
                self._read(start, stop, answer)
                return []

    def _stopped(self) -> Failure | None:
        if self.away is None and self.enough():
            return whole(Reason.TIMEOUT, "not sent: the time of this batch was over")
        return self.away

    def _after_loss(self, start: int, stop: int, lost: Lost) -> list[Span]:
        """A document or an outage may be the cause. Only if the server still answers, it is a document; or a node
        that hung, and then it is sent again as a whole: equal versions pass."""
        self.pressure = self.pressure or (lost.failure.reason is Reason.TIMEOUT and not lost.elsewhere)
        if not lost.sent or not self.answers():
            self.away = lost.failure
            return self._all(start, stop, lost.failure)
        if lost.elsewhere:
            return [(start, stop)]
        return self._halve(start, stop, replace(lost.failure, whole=False))

    def _after_refusal(self, start: int, stop: int, failure: Failure) -> list[Span]:
        self.pressure = self.pressure or failure.reason is Reason.ES_429
        if failure.failure_class is FailureClass.SYSTEMIC or (
            failure.reason is not Reason.ES_429 and not self.answers()
        ):
            self.away = failure
        return self._all(start, stop, failure)

    def _read(self, start: int, stop: int, outcomes: Sequence[Outcome]) -> None:
        self.outcomes[start:stop] = outcomes
        if not all_written(outcomes):
            self.pressure = self.pressure or any(
                isinstance(outcome, Failure) and outcome.reason is Reason.ES_429 for outcome in outcomes
            )

    def _halve(self, start: int, stop: int, alone: Failure) -> list[Span]:
        if stop - start == 1:
            return self._all(start, stop, alone)
        middle = (start + stop) // 2
        return [(start, middle), (middle, stop)]

    def _all(self, start: int, stop: int, failure: Failure) -> list[Span]:
        self.outcomes[start:stop] = [failure] * (stop - start)
        return []


class DocumentCounts:
    """How often something was met with a document, in this process. Safe for several lanes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = {}

    def add(self, action: BulkAction) -> int:
        key = (action.index, action.id, action.version)
        with self._lock:
            count = self._counts[key] = self._counts.pop(key, 0) + 1
            if len(self._counts) > _MOST_COUNTED:
                del self._counts[next(iter(self._counts))]
            return count

    def forget(self, action: BulkAction) -> None:
        with self._lock:
            self._counts.pop((action.index, action.id, action.version), None)


class Stubborn:
    """Overload and a document that is too large give the same reply: a 429 or a reset. Only the second persists.

    The counts span an event's attempts, so that an overload has time to pass.
    """

    def __init__(self, least_bytes: int) -> None:
        self._least_bytes = least_bytes
        self._counts = DocumentCounts()

    def judge(self, action: BulkAction, size_bytes: int, outcome: Outcome) -> Outcome:
        """The outcome, or `too_large` instead. Only for a document that was alone in its request."""
        if size_bytes < self._least_bytes:
            return outcome
        if not isinstance(outcome, Failure) or outcome.reason not in (Reason.ES_429, Reason.CONNECT):
            self._counts.forget(action)
            return outcome
        if self._counts.add(action) < REFUSED_ALONE:
            return outcome
        self._counts.forget(action)
        return too_large(outcome, REFUSED_ALONE)
