"""Where Kafka is the source: waits until what the topic held at a moment is settled, so that a comparison may judge.

Of events on their way PostgreSQL knows only the exceptions: what is in the topic and not yet in the index is no drift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from outbox.errors import StreamDown
from outbox.ops.status import StreamRecords, wait_until_caught_up
from outbox.ports import StreamOffsets

PATIENCE_SECONDS: Final = 60.0  # for daemons that work: a longer lag is for `outbox wait --caught-up`
AGAIN_SECONDS: Final = 2.0  # after they did not get there once, so that a comparison without daemons ends


@dataclass(slots=True)
class StreamMark:
    """`late` says why the last waiting was in vain; empty where it was not."""

    offsets: StreamOffsets
    patience_seconds: float = field(default_factory=lambda: PATIENCE_SECONDS)
    late: str = ""

    def passed(self, tell: Callable[[int], None] = lambda _: None) -> bool:
        """Everything that the topic holds now is answered by the index, or a row of PostgreSQL. False: not in time."""
        patience = min(self.patience_seconds, AGAIN_SECONDS) if self.late else self.patience_seconds
        try:
            waited = wait_until_caught_up(StreamRecords(self.offsets), patience, tell=tell)
        except StreamDown as error:
            self.late = f"Kafka does not answer ({error.detail or error.message})"
            return False
        if waited.caught_up:
            self.late = ""
            return True
        self.late = f"records of Kafka were not settled within {self.patience_seconds:.0f} s: see `outbox status`"
        return False
