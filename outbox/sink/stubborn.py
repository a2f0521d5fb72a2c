"""Counts how often a large document was refused when sent alone, until it is classified as too large."""

import threading
from typing import Final

from outbox.policy.classify import too_large
from outbox.policy.outcome import Failure, Outcome, Reason
from outbox.ports import BulkAction

AFTER: Final = 3
_MOST: Final = 1000


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
        return too_large(outcome, AFTER) if self._count(key) >= AFTER else outcome

    def _count(self, key: tuple[str, str, int]) -> int:
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            if count < AFTER:
                self._counts[key] = count
            if len(self._counts) > _MOST:
                del self._counts[next(iter(self._counts))]
            return count

    def _forget(self, key: tuple[str, str, int]) -> None:
        with self._lock:
            self._counts.pop(key, None)
