"""The API's answers: written as JSON with every digit of a payload; and their shapes, for the API's document alone.

Most shapes are dataclasses of `ops` under the API's names. Nothing is validated by them.
"""

# mypy: disable-error-code="valid-type"
# (Models that are made at run time are no types to it.)

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

import orjson
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from outbox import ports
from outbox.ops import audit, failures, status, stored_event, webhook
from outbox.ops.replay.plan import Plan as ReplayPlan
from outbox.ops.stored_event import StoredEvent, failure_type
from outbox.policy import replay

# Named once: `asdict` copies every value of every row, 60 us per event. Up to 16 KB of detail are for one event alone.
_COLUMNS = tuple(field.name for field in fields(StoredEvent) if field.name != "error_detail")
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_UTC_Z


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(value), status, dict(headers or {}), media_type="application/json")


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=_OPTIONS)


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return dict(value)
        case tuple() | set() | frozenset():
            return list(value)
        case UUID():
            return str(value)
        case bytes():
            # Bytes are json columns: text that PostgreSQL has checked, passed on as it is.
            return orjson.Fragment(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def event(stored: StoredEvent) -> dict[str, Any]:
    """An event as lists and details show it: its row without the payload, and what follows from it."""
    told = {name: getattr(stored, name) for name in _COLUMNS}
    told["trace_id"] = stored.trace_id
    told["failure_type"] = failure_type(stored.error_reason) if stored.error_reason else None
    return told


def model(name: str, about: str | None = None, /, *, base: Any = BaseModel, **fields: Any) -> Any:
    """A field is a type, or a type with its description; a type with None is one that may be left out."""
    given: dict[str, Any] = {}
    for field, about_it in fields.items():
        kind, text = about_it if isinstance(about_it, tuple) else (about_it, "")
        given[field] = (kind, None if text is None else Field(description=text or None))
    return create_model(name, __doc__=about, __module__=__name__, __base__=base, **given)


def shape(
    name: str,
    source: type,
    about: str | None = None,
    /,
    *,
    without: Collection[str] = (),
    **changed: Any,
) -> Any:
    """A model with the fields of `source`. `changed` gives types of its own, and fields that `source` has
    not. Where nothing is changed the dataclass itself is the shape."""
    types = get_type_hints(source)
    return model(name, about, **{field: types[field] for field in types if field not in without} | changed)


# What people did

AuditRow = shape("AuditRow", audit.AuditRow, detail=Any)
Delivery = shape("Delivery", webhook.DeliveryRow, body=Any)
AuditList = model("AuditList", rows=list[AuditRow], next_cursor=str | None, matched=int, matched_capped=bool)
Pause = model(
    "Pause",
    "What operators have set for the projectors.",
    scope=(str, "`*`, `type:NAME` or `let_fail:FINGERPRINT`."),
    kind=str,
    by=str,
    reason=str,
    at=datetime,
    until=(datetime | None, None),
)
Resumed = model("Resumed", resumed=bool, scope=str)
DeliveryList = model("DeliveryList", deliveries=list[Delivery], next_cursor=str | None)
Redelivered = model("Redelivered", id=UUID, queued=bool)

# Events

Event = shape(
    "Event",
    stored_event.StoredEvent,
    "One row of the outbox, without its payload.",
    without=("error_detail",),
    failure_type=str | None,
    trace_id=str | None,
)
EventDetail = model(
    "EventDetail",
    "An event with all that is recorded about it.",
    base=Event,
    index=(str, "Where its document lives."),
    document_id=str,
    payload=(Any, "As the producer wrote it, masked by OUTBOX_REDACT_FIELDS; null for viewers."),
    payload_bytes=int | None,
    payload_shown=(bool, "False where the role is too low, or the payload is over a megabyte."),
    error_detail=(Any, "The cause chain, redacted."),
    attempts_log=list[dict[str, Any]],
    acts=list[dict[str, Any]],
    related=list[dict[str, Any]],
)
EntityState = model(
    "EntityState",
    "Where the events of an entity are that were committed before.",
    entity_type=str,
    entity_id=str,
    status=(str, "`done`, `failed` if one of its events is failed, `pending` when the time is over."),
)
EventList = model(
    "EventList",
    events=list[Event],
    next_cursor=(str | None, "Give it as `cursor` for the next page; null at the end."),
    remark=(str | None, "What was not searched, if anything."),
)

# Failed events

FailedStats = shape("FailedStats", failures.FailedStats)
Stats = shape(
    "Stats",
    failures.Stats,
    "Failures as they are now, and what became of events over the hours.",
    failed=FailedStats,
)
Preview = model(
    "Preview",
    "What a replay with this filter would take, in its order. No side effect.",
    events=list[dict[str, Any]],
    page=int,
    page_size=int,
    matched=(int, "How many match; at most 10,000 are counted."),
    matched_capped=(bool, "There are more than were counted: read `10,000+`."),
)
Plan = shape(
    "Plan",
    ReplayPlan,
    "A dry run: what a replay would do. Nothing was changed.",
    without=("id", "created_at", "ids"),
    dry_run=bool,
    matched_capped=bool,
)
GroupList = model("GroupList", groups=list[failures.FailureGroup])

# Replays

Replay = shape(
    "Replay",
    replay.ReplayBatch,
    "A replay: a batch of pinned events on its way.",
    without=("client_id", "webhook_to", "webhook_url"),
    status=(str, "queued, dispatching, following; then settled, failed, timeout or cancelled."),
    webhook_host=(str | None, "Its own webhook's host; the rest of an address is often a secret."),
)
ReplayDetail = model(
    "ReplayDetail", base=Replay, items=(list[dict[str, Any]], "Events that did not simply become done, 500 at most.")
)
ReplayList = model("ReplayList", replays=list[Replay], next_cursor=str | None)

# The status

TypeCounts = shape(
    "TypeCounts",
    status.TypeCounts,
    done=(int, "Finished, as far back as the roll-up remembers (90 days)."),
    discarded=(int, "Discarded now."),
)
StreamPartition = shape(
    "StreamPartition",
    ports.PartitionOffsets,
    "How far the group has come in one partition.",
    lag=(int, "Records that are to be read."),
    gone=(bool, "What is to be read next is no longer there: a gap."),
)
Stream = shape("Stream", status.StreamStatus, "Kafka, where it is the source.", partitions=list[StreamPartition])
Ops = shape(
    "Ops",
    status.QueueStatus,
    "How it is now.",
    without=("schema",),
    by_entity_type=list[TypeCounts],
    recent_failures=list[Event],
    recent_audit=AuditList,
    pauses=list[Pause],
    stream=(Stream | None, "Null where the source is the table."),
    stale=(str | None, "Why this is an old reading, if it is."),
)
