"""What Elasticsearch holds for an event's document now, and an event's payload without its mask. Changes no event."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from outbox.errors import NotFound, OutboxError
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.masking import masked

Row = Mapping[str, Any]


class Documents(Protocol):
    def read(self, index: str, id: str, routing: str | None) -> tuple[int, bytes] | None: ...


class Events(Protocol):
    def event(self, id: UUID) -> Row | None: ...


class AuditLog(Protocol):
    def write(self, entries: Sequence[Entry]) -> None: ...


@dataclass(frozen=True, slots=True)
class Current:
    """`source` None: no such document. `problem`: Elasticsearch could not be asked, in words."""

    version: int | None = None
    source: bytes | None = None
    problem: str = ""


class Payloads:
    def __init__(
        self, documents: Documents, events: Events, audit: AuditLog, redact_fields: Collection[str] = ()
    ) -> None:
        self._documents = documents
        self._events = events
        self._audit = audit
        self._redact_fields = redact_fields

    def current(self, index: str, id: str, routing: str | None, *, unmasked: bool = False) -> Current:
        """The document as it is stored, masked like the payload beside it. Never raises: a page shows what it has."""
        try:
            found = self._documents.read(index, id, routing)
        except OutboxError as away:
            return Current(problem=away.detail or away.message)
        if found is None:
            return Current()
        version, source = found
        return Current(version, source if unmasked else masked(source, self._redact_fields))

    def unmask(self, id: UUID, actor: Actor, reason: str) -> bytes | None:
        """The payload as the producer wrote it. The audit row is durable before a byte is handed out."""
        row = self._events.event(id)
        if row is None:
            raise NotFound(f"event {id}")
        fields = {"fields": sorted(self._redact_fields)}
        self._audit.write(
            [
                Entry(
                    Action.PAYLOAD_UNMASKED,
                    actor,
                    reason,
                    event_id=id,
                    entity_type=row["entity_type"],
                    entity_id=row["entity_id"],
                    detail=fields,
                )
            ]
        )
        payload: bytes | None = row["payload"]
        return payload
