"""Finds the document that makes a request fail: halve, send again, down to one. Sends by a callback."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from outbox.policy.classify import RequestVerdict, Split, whole
from outbox.policy.outcome import Failure, FailureClass, Outcome, Reason, all_written

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lost:
    """No reply. `sent`: at least in part, so that a document may be the cause."""

    failure: Failure
    sent: bool = True


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
        """A document or an outage may be the cause. Only if the server still answers, it is a document."""
        self.pressure = self.pressure or lost.failure.reason is Reason.TIMEOUT
        if not lost.sent or not self.answers():
            self.away = lost.failure
            return self._all(start, stop, lost.failure)
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
