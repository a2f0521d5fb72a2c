"""The shapes of the API's answers, for its document alone: answers are written byte for byte (`answers`).

Most are dataclasses of `ops` under the API's names. Nothing is validated by them.
"""

# mypy: disable-error-code="valid-type,misc"
# (Models that are made at run time are no types to it.)

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

from pydantic import BaseModel, Field, create_model

from outbox.ops import audit, discard, failures, reprojection, status, stored, webhook
from outbox.policy import replay


def shape(
    name: str,
    source: type,
    about: str | None = None,
    /,
    *,
    told: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    behind: Mapping[str, str] | None = None,
    **changed: Any,
) -> Any:
    """A model with the fields of `source`. `told` describes some of them; `changed` gives types of its own, and fields
    that `source` has not: those stand at the end, or `behind` another field."""
    types = {field: kind for field, kind in get_type_hints(source).items() if field not in without}
    order = [field for field in types if not field.startswith("_")]
    for field in changed:
        if field not in types:
            place = order.index((behind or {}).get(field, order[-1])) + 1
            order.insert(place, field)
    fields = {
        field: (changed.get(field, types.get(field)), Field(description=(told or {}).get(field))) for field in order
    }
    return create_model(name, __doc__=about, __module__=__name__, **fields)  # type: ignore[call-overload]


# What people did

AuditRow = shape("AuditRow", audit.AuditRow, detail=Any)
AuditPruned = shape(
    "AuditPruned", audit.AuditPruned, told={"removed": "Rows removed, or that would be where `dry_run`."}
)
Delivery = shape("Delivery", webhook.DeliveryRow, body=Any)


class AuditList(BaseModel):
    rows: list[AuditRow]
    next_cursor: str | None
    matched: int
    matched_capped: bool


class Pause(BaseModel):
    """What operators have told the projectors."""

    scope: str = Field(description="`*`, `type:NAME` or `let_fail:FINGERPRINT`.")
    kind: str
    by: str
    reason: str
    at: datetime
    until: datetime | None = None


class Resumed(BaseModel):
    resumed: bool
    scope: str


class DeliveryList(BaseModel):
    deliveries: list[Delivery]
    next_cursor: str | None


class Redelivered(BaseModel):
    id: UUID
    queued: bool


# Events

Event = shape(
    "Event",
    stored.StoredEvent,
    "One row of the outbox, without its payload.",
    without=("error_detail",),
    behind={"failure_type": "dead_reason", "trace_id": "traceparent"},
    failure_type=str | None,
    trace_id=str | None,
)
Requested = shape("Requested", reprojection.Requested, "The event that was written.")
Discarded = shape("Discarded", discard.Discarded)


class Attempt(BaseModel):
    """A failed attempt whose cause was this event."""

    attempt: int
    replay: int
    at: datetime
    worker: str | None
    reason: str | None
    code: str | None
    error: str | None
    detail: Any = None


class OwnAct(BaseModel):
    """What a person did with this event."""

    at: datetime
    action: str
    actor: str
    source: str
    reason: str | None
    batch_id: UUID | None


class Related(BaseModel):
    """Another event of the same entity."""

    id: UUID
    status: str
    op: str
    event_version: int
    attempts: int
    error_reason: str | None
    created_at: datetime
    failed_at: datetime | None
    processed_at: datetime | None


class EventDetail(Event):
    """An event with all that is recorded about it."""

    index: str = Field(description="Where its document lives.")
    document_id: str
    payload: Any = Field(description="As the producer wrote it, masked by OUTBOX_REDACT_FIELDS; null for viewers.")
    payload_bytes: int | None
    payload_shown: bool = Field(description="False where the role is too low, or the payload is over a megabyte.")
    error_detail: Any = Field(description="The cause chain, redacted.")
    attempts_log: list[Attempt]
    acts: list[OwnAct]
    related: list[Related]


class EventList(BaseModel):
    events: list[Event]
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null at the end.")
    remark: str | None = Field(description="What was not searched, if anything.")


# Failed events

FailedEvent = shape("FailedEvent", failures.PreviewRow, "A failed event as the preview shows it.")
Group = shape(
    "Group",
    failures.FailureGroup,
    "Failures of one kind.",
    told={"failed_again": "Of them, replayed before.", "hours": "The last 24 hours, the newest last."},
)
Flushed = shape("Flushed", discard.Flushed, told={"id": "The `batch_id` of its audit rows."})
FailedStats = shape("FailedStats", failures.FailedStats)
HourOfFailures = shape("HourOfFailures", failures.HourOfFailures)
HourOfWork = shape("HourOfWork", failures.HourOfWork)
Stats = shape(
    "Stats",
    failures.Stats,
    "Failures as they are now, and what became of events over the hours.",
    told={"table": "Entity type, then failure type."},
    failed=FailedStats,
    hours=list[HourOfFailures],
    work=list[HourOfWork],
)


class Preview(BaseModel):
    """What a replay with this filter would take, in its order. No side effect."""

    events: list[FailedEvent]
    page: int
    page_size: int
    matched: int = Field(description="How many match; at most 10,000 are counted.")
    matched_capped: bool = Field(description="There are more than were counted: read `10,000+`.")


class Sample(BaseModel):
    id: UUID
    entity_type: str
    entity_id: str
    event_version: int
    error_reason: str | None
    error_fingerprint: str | None
    error: str | None
    failed_at: datetime | None
    status: str


class Plan(BaseModel):
    """A dry run: what a replay would do. Nothing was changed."""

    dry_run: bool
    filter: dict[str, Any]
    matched: int
    matched_capped: bool
    total: int = Field(description="How many would move, within the limit.")
    by_entity_type: dict[str, int]
    by_error_reason: dict[str, int]
    by_fingerprint: dict[str, int]
    skipped: dict[str, int] = Field(description="Given ids that would not move, by their state.")
    oldest: datetime | None
    newest: datetime | None
    sample: list[Sample]
    superseded: int | None = Field(description="Of the compared, how many Elasticsearch holds in a newer version.")
    compared: int


class GroupList(BaseModel):
    groups: list[Group]


# Replays

_STATES = "queued, dispatching, following; then settled, failed, timeout or cancelled."
Replay = shape(
    "Replay",
    replay.ReplayBatch,
    "A replay: a batch of pinned events on its way.",
    told={"status": _STATES, "webhook_host": "Its own webhook's host; the rest of an address is often a secret."},
    without=("client_id", "webhook_to", "webhook_url"),
    behind={"webhook_host": "rate"},
    status=str,
    webhook_host=str | None,
)


class ReplayItem(BaseModel):
    event_id: UUID
    state: str
    skip_reason: str | None
    outcome: str | None
    status: str | None
    entity_type: str | None
    entity_id: str | None
    error_reason: str | None
    error: str | None


class ReplayDetail(Replay):
    items: list[ReplayItem] = Field(description="Events that did not simply become done, 500 at most.")


class ReplayList(BaseModel):
    replays: list[Replay]
    next_cursor: str | None


# The status

Queue = shape(
    "Queue",
    status.Queue,
    told={"rate": "Events finished a second, over the last ten.", "capped": "There is more than was counted."},
)
TypeCounts = shape(
    "TypeCounts",
    status.TypeCounts,
    told={
        "done": "Finished, as far back as the roll-up remembers (90 days).",
        "discarded": "Discarded now.",
    },
    behind={"done": "failed", "discarded": "done"},
    done=int,
    discarded=int,
)
Worker = shape("Worker", status.WorkerSeen)


class Ops(BaseModel):
    """How it is now."""

    sentence: str
    queue: Queue
    failed_by_reason: dict[str, int]
    by_entity_type: list[TypeCounts]
    recent_failures: list[Event]
    recent_audit: AuditList
    workers: list[Worker]
    pauses: list[Pause]
    sampled_at: datetime
    stale: str | None = Field(description="Why this is an old reading, if it is.")
