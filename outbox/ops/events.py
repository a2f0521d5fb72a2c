"""Events as people see them: one with all that is recorded about it, a page of them, a payload without its mask.

A list goes through shelves (states) one after the other, each with an order that an index gives, so that no page reads
more than itself. Changes no event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from outbox.errors import NotFound, OutboxError, UsageError
from outbox.ops.stored_event import StoredEvent
from outbox.policy import inputs
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.document import Naming
from outbox.policy.event import FANOUT, Status
from outbox.policy.inputs import BadRequest, EventFilter
from outbox.policy.redact import masked

if TYPE_CHECKING:
    from outbox.store.browsing import PostgresBrowsing

_LAST_SEQ: Final = 2**63 - 1


class Shelf(NamedTuple):
    """Events of some states, by their number or by the time of their end."""

    name: str
    query: str
    states: frozenset[Status]
    ended: str = ""


_SHELVES: Final = (
    Shelf("open", "list_open", frozenset({Status.PENDING, Status.PROCESSING})),
    Shelf("failed", "list_failed", frozenset({Status.FAILED}), "failed_at"),
    Shelf("done", "list_done", frozenset({Status.DONE}), "processed_at"),
    Shelf("discarded", "list_discarded", frozenset({Status.DISCARDED}), "processed_at"),
)
_BY_DEFAULT: Final = (Status.PENDING, Status.PROCESSING, Status.FAILED)


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UsageError(f"status {name[:80]!r} is none of {', '.join(Status)}") from None


def _behind(shelf: Shelf, last: StoredEvent) -> str:
    """The cursor of the page that begins there."""
    at = getattr(last, shelf.ended) or inputs.LAST[0] if shelf.ended else None
    return f"{shelf.name}:{last.seq or 0 if at is None else inputs.cursor(at, last.id)}"


def begin(shelf: Shelf, place: str) -> dict[str, Any]:
    """What the query takes for a place that an earlier page named, or for the first row."""
    if shelf.ended:
        at, id = inputs.read_cursor(place)
        return {"before_at": at, "before_id": id}
    if place and not (place.isascii() and place.isdecimal() and len(place) < 20):
        raise BadRequest([("cursor", "is invalid")])
    return {"before_seq": min(int(place), _LAST_SEQ) if place else _LAST_SEQ}


Row = Mapping[str, Any]
MOST_LISTED = 500


@dataclass(frozen=True, slots=True)
class EventDetail:
    """An event with its payload (masked by field name), its attempts, what people did, and its entity's others."""

    event: StoredEvent
    payload: bytes | None
    payload_bytes: int | None
    error_detail: bytes | None
    index: str
    document_id: str
    attempts: Sequence[Row]
    acts: Sequence[Row]
    related: Sequence[Row]


@dataclass(frozen=True, slots=True)
class EventPage:
    """`next` continues the list, empty at its end. `remark` says what was not searched."""

    events: Sequence[StoredEvent]
    next: str
    remark: str = ""


class Browse:
    def __init__(self, store: PostgresBrowsing, naming: Naming, redact_fields: Collection[str] = ()) -> None:
        self._store = store
        self._naming = naming
        self._redact_fields = redact_fields

    def show(self, id: UUID) -> EventDetail:
        row = self._store.event(id)
        if row is None:
            raise NotFound(f"event {id}")
        event = StoredEvent.of(row)
        index, document_id, _ = self._naming.address(event.entity_type, event.entity_id)
        payload = row["payload"]
        return EventDetail(
            event=event,
            payload=None if payload is None else masked(payload, self._redact_fields),
            payload_bytes=row["payload_bytes"],
            error_detail=row["error_detail"],
            index=index,
            document_id=document_id,
            attempts=self._store.attempts(id),
            acts=self._store.acts(id),
            related=() if event.op == FANOUT else self._store.related(id, event.entity_type, event.entity_id),
        )

    def page(self, asked: EventFilter, statuses: Collection[str] = (), limit: int = 50, after: str = "") -> EventPage:
        """Open events by their number, then failed, done and discarded ones by their time; the newest of each first.

        No status named: what is open or failed; with ids or an entity id, whatever state it is in.
        """
        limit = max(1, min(limit, MOST_LISTED))
        everything = bool(asked.ids or asked.entity_id is not None)
        wanted = [_status(name) for name in statuses] or list(Status if everything else _BY_DEFAULT)
        shelves = [shelf for shelf in _SHELVES if not shelf.states.isdisjoint(wanted)]
        remark = self._remark(asked, wanted)
        name, _, place = after.partition(":")
        if after and name not in [shelf.name for shelf in shelves]:
            raise BadRequest([("cursor", "is invalid")])
        found: list[StoredEvent] = []
        for shelf in dropwhile(lambda shelf: after and shelf.name != name, shelves):
            left = limit - len(found)
            if not left:
                return EventPage(found, f"{shelf.name}:", remark)
            rows = self._shelf(asked, shelf, wanted, place, left + 1)
            found += [StoredEvent.of(row) for row in rows[:left]]
            if len(rows) > left:
                return EventPage(found, _behind(shelf, found[-1]), remark)
            place = ""
        return EventPage(found, "", remark)

    def _shelf(
        self, asked: EventFilter, shelf: Shelf, wanted: Collection[Status], place: str, limit: int
    ) -> Sequence[Row]:
        named = begin(shelf, place)
        if not shelf.ended:
            named["statuses"] = [str(status) for status in wanted if status in shelf.states]
        deletes_only = shelf.query == "list_done" and self._searches_deletes_only(asked)
        return self._store.page("list_done_deletes" if deletes_only else shelf.query, asked, limit=limit, **named)

    def _searches_deletes_only(self, asked: EventFilter) -> bool:
        """An entity's done events without an index for them: a scan of all that was ever done."""
        return asked.entity_id is not None and not asked.ids and not self._store.finds_done_by_entity()

    def _remark(self, asked: EventFilter, wanted: Collection[Status]) -> str:
        if Status.DONE in wanted and self._searches_deletes_only(asked):
            return (
                "of the entity's done events only deletes were searched; `outbox migrate --by-entity` adds the index "
                "for the others"
            )
        return ""


@dataclass(frozen=True, slots=True)
class Current:
    """`source` None: no such document. `problem`: Elasticsearch could not be asked, in words."""

    version: int | None = None
    source: bytes | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Payloads:
    document: Callable[[str, str, str | None], tuple[int, bytes] | None]  # (index, id, routing) -> version and source
    event: Callable[[UUID], Row | None]
    write_audit: Callable[[Sequence[Entry]], None]
    redact_fields: Collection[str] = ()

    def current(self, index: str, id: str, routing: str | None, *, unmasked: bool = False) -> Current:
        """The document as it is stored, masked like the payload beside it. Never raises: a page shows what it has."""
        try:
            found = self.document(index, id, routing)
        except OutboxError as away:
            return Current(problem=away.detail or away.message)
        if found is None:
            return Current()
        version, source = found
        return Current(version, source if unmasked else masked(source, self.redact_fields))

    def unmask(self, id: UUID, actor: Actor, reason: str) -> bytes | None:
        """The payload as the producer wrote it. The audit row is durable before a byte is handed out."""
        row = self.event(id)
        if row is None:
            raise NotFound(f"event {id}")
        fields = {"fields": sorted(self.redact_fields)}
        self.write_audit(
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
