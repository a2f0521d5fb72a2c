"""Attaching and detaching users' tables, and what else a person must do. Writes no trigger itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox.ports import Attachment, AttachResult


class Attachments(Protocol):
    def attach(self, wanted: Attachment) -> AttachResult: ...
    def detach(self, table: str, *, entity_type: str | None) -> Sequence[Attachment]: ...


@dataclass(frozen=True, slots=True)
class Attached:
    """`next` is the command, or with payloads the SQL, that sends the rows that are there already."""

    table: str
    entity_type: str
    id_column: str | None
    via: str | None
    routing_column: str | None
    payload: bool
    columns: tuple[str, ...]
    per_row: bool
    rows: int
    rows_exact: bool
    next: str
    notes: tuple[str, ...] = ()


class ProducerDesk:
    def __init__(self, attachments: Attachments, view: str, view_exists: Callable[[], bool]) -> None:
        self._attachments = attachments
        self._view = view
        self._view_exists = view_exists

    def attach(self, wanted: Attachment) -> Attached:
        done = self._attachments.attach(wanted)
        return Attached(
            table=done.attachment.table,
            **done.attachment.how(),
            rows=done.there.rows,
            rows_exact=done.there.exact,
            next=_next_command(done),
            notes=(*done.notes, *self._missing_view(wanted.payload)),
        )

    def detach(self, table: str, *, entity_type: str | None = None) -> Sequence[Attachment]:
        return self._attachments.detach(table, entity_type=entity_type)

    def _missing_view(self, payload: bool) -> tuple[str, ...]:
        if payload or self._view_exists():
            return ()
        until = "until it is created, and the projector restarted, these events fail with OUTBOX_PAYLOAD_MISSING"
        return (f"there is no view {self._view} yet: {until}",)


def _next_command(done: AttachResult) -> str:
    """Their documents are not in the index yet. With payloads there may be no view to read them from."""
    if not done.there.rows:
        return ""
    if done.attachment.payload:
        return done.enqueue
    return shlex.join(["outbox", "backfill", "--type", done.attachment.entity_type])
