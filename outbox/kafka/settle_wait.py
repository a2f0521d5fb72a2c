"""Where Kafka is the source: waits until what was committed at a moment is settled, so that a comparison may judge.

Of events on their way PostgreSQL knows only the exceptions: what is not yet in the topic, or in the topic and not yet
in the index, is no drift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from outbox.errors import StreamDown
from outbox.kafka.capture_wait import CAPTURE_SECONDS, await_capture
from outbox.ops.status import StreamRecords, wait_until_caught_up
from outbox.ports import StreamOffsets
from outbox.store.event_log import PostgresCapture

PATIENCE_SECONDS: Final = 60.0  # for daemons that work: a longer lag is for `outbox wait --caught-up`
AGAIN_SECONDS: Final = 2.0  # after they did not get there once, so that a comparison without daemons ends


@dataclass(slots=True)
class StreamMark:
    """`late`: why the last waiting was in vain. `unknown`: why it did not wait for what is not captured."""

    offsets: StreamOffsets
    patience_seconds: float = field(default_factory=lambda: PATIENCE_SECONDS)
    capture: PostgresCapture | None = None
    late: str = ""
    unknown: str = ""

    def passed(self) -> bool:
        """Everything that is committed now is answered by the index, or a row of PostgreSQL. False: not in time.

        In this order: what is captured is in the topic when its end is read."""
        again = bool(self.late)
        self.late = self._not_captured(again) or self._not_settled(again)
        return not self.late

    def _not_captured(self, again: bool) -> str:
        if self.capture is None:
            return ""
        waited = await_capture(self.capture, AGAIN_SECONDS if again else CAPTURE_SECONDS)
        self.unknown = waited.unknown
        return waited.late

    def _not_settled(self, again: bool) -> str:
        patience = min(self.patience_seconds, AGAIN_SECONDS) if again else self.patience_seconds
        try:
            waited = wait_until_caught_up(StreamRecords(self.offsets), patience)
        except StreamDown as error:
            return f"Kafka does not answer ({error.detail or error.message})"
        if waited.caught_up:
            return ""
        return f"records of Kafka were not settled within {self.patience_seconds:.0f} s: see `outbox status`"
