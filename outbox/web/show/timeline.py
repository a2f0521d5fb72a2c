"""Tells an event's life from what is recorded about it, and nothing else: a time that nobody wrote is not shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from outbox.ops.stored import StoredEvent
from outbox.policy.event import REFRESH

Row = Mapping[str, Any]
_ACTS: Final = {
    "REPLAY_BATCH_ITEM": "Replayed",
    "REPLAY_BATCH_SKIPPED": "Left out of a replay",
    "EVENT_DISCARDED": "Discarded",
    "EVENT_REQUESTED": "Asked for",
    "PAYLOAD_UNMASKED": "Payload unmasked",
}
_ENDS: Final = {"done": ("Done", "ok"), "discarded": ("Discarded", "info")}


class Step(NamedTuple):
    at: datetime
    what: str
    detail: str
    tone: str = ""
    link: str = ""


def life(event: StoredEvent, attempts: Sequence[Row], acts: Sequence[Row]) -> list[Step]:
    """Oldest first; what is still to come stands last."""
    return sorted(_steps(event, attempts, acts), key=lambda step: step.at)


def _steps(event: StoredEvent, attempts: Sequence[Row], acts: Sequence[Row]) -> Iterator[Step]:
    version = "" if event.op == REFRESH else f", version {event.event_version}"
    yield Step(event.created_at, "Created", f"{event.op}{version}")
    for row in attempts:
        said = ", ".join(filter(None, [row["reason"], f"by {row['worker']}" if row["worker"] else ""]))
        yield Step(row["at"], f"Attempt {row['attempt']} failed", said, "bad")
    for row in acts:
        detail = f"by {row['actor']} ({row['source']})" + (f": {row['reason']}" if row["reason"] else "")
        batch = f"/ops/queue/replays/{row['batch_id']}" if row["batch_id"] else ""
        yield Step(row["at"], _ACTS.get(row["action"], str(row["action"])), detail, "info", batch)
    yield from _now(event)


def _now(event: StoredEvent) -> Iterator[Step]:
    """Where it stands. The last claim is kept on the row; earlier ones are not."""
    if event.last_attempt_at:
        owner = f" by {event.owner}" if event.owner else ""
        yield Step(event.last_attempt_at, f"Claimed{owner}", f"attempt {event.attempts}")
    if event.failed_at:
        yield Step(event.failed_at, "Failed", event.dead_reason or event.error_reason or "", "bad")
    if event.processed_at and event.status in _ENDS:
        what, tone = _ENDS[event.status]
        yield Step(event.processed_at, what, event.read, tone)
    if event.next_retry_at and event.status == "pending":
        yield Step(event.next_retry_at, "Due again", event.error_reason or "", "info")
    if event.lease_until and event.status == "processing":
        yield Step(event.lease_until, "Its lease ends", "unless it is renewed")
