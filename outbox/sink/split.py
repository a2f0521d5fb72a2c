"""Finds the document that makes a request fail: halve, send again, down to one; and which one is refused for its size.
Sends by a callback."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from outbox.policy.classify import RequestVerdict, Split, too_large, whole
from outbox.policy.outcome import Failure, FailureClass, Outcome, Reason, all_written
from outbox.ports import BulkAction

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


REFUSED_ALONE: Final = 3
_MOST_COUNTED: Final = 1000


class Stubborn:
    """Overload and a document that is too large give the same reply: a 429 or a reset. Only the second persists.

    The counts live in this process and span an event's attempts, so that an overload has time to pass.
    """

    def __init__(self, least_bytes: int) -> None:
        self._least_bytes = least_bytes
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = {}

    def judge(self, action: BulkAction, size_bytes: int, outcome: Outcome) -> Outcome:
        """The outcome, or `too_large` instead. Only for a document that was alone in its request."""
        if size_bytes < self._least_bytes:
            return outcome
        key = (action.index, action.id, action.version)
        if not isinstance(outcome, Failure) or outcome.reason not in (Reason.ES_429, Reason.CONNECT):
            self._forget(key)
            return outcome
        return too_large(outcome, REFUSED_ALONE) if self._count(key) >= REFUSED_ALONE else outcome

    def _count(self, key: tuple[str, str, int]) -> int:
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            if count < REFUSED_ALONE:
                self._counts[key] = count
            if len(self._counts) > _MOST_COUNTED:
                del self._counts[next(iter(self._counts))]
            return count

    def _forget(self, key: tuple[str, str, int]) -> None:
        with self._lock:
            self._counts.pop(key, None)
