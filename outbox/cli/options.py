"""Owns the options of the one event filter, the same on every command that takes it; they are read in `policy`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from outbox.errors import UsageError
from outbox.policy.filter import BadFilter, EventFilter, read_event_filter

_PANEL = "Filter (all that is given must fit)"


def _option(*names: str, help: str, metavar: str = "TEXT") -> Any:  # noqa: A002
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_PANEL, show_default=False)


EntityType = Annotated[str | None, _option("--entity-type", "-t", help="Entity type.", metavar="TYPE")]
EntityId = Annotated[str | None, _option("--entity-id", help="Entity id.", metavar="ID")]
ErrorReason = Annotated[str | None, _option("--error-reason", help="Such as es_rejected_document.", metavar="REASON")]
ErrorCode = Annotated[str | None, _option("--error-code", help="Such as OUTBOX_PAYLOAD_INVALID.", metavar="CODE")]
DeadReason = Annotated[str | None, _option("--dead-reason", help="Such as non_retryable.", metavar="REASON")]
FailureType = Annotated[str | None, _option("--failure-type", help="Such as document or network.", metavar="TYPE")]
Fingerprint = Annotated[str | None, _option("--fingerprint", help="The same kind of failure.", metavar="HEX")]
TraceId = Annotated[str | None, _option("--trace-id", help="Trace id of the producer.", metavar="HEX")]
Ids = Annotated[list[str] | None, _option("--id", help="Event id; repeatable, 500 at most.", metavar="UUID")]
Since = Annotated[str | None, _option("--since", help="Not before: an ISO time, or an age such as 2h.", metavar="TIME")]
Until = Annotated[str | None, _option("--until", help="Before: an ISO time, or an age such as 10m.", metavar="TIME")]


def event_filter(**raw: Any) -> EventFilter:
    """All problems at once, named by their flags."""
    try:
        return read_event_filter(raw, datetime.now(UTC))
    except BadFilter as wrong:
        told = "; ".join(f"--{_flag(field)}: {what}" for field, what in wrong.problems)
        raise UsageError(told) from wrong


def _flag(field: str) -> str:
    return "id" if field == "ids" else field.replace("_", "-")
