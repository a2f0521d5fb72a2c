"""Events as people see them: one with all that is recorded about it, a page of them, a payload without its mask.

A list goes through shelves (states) one after the other, each with an order that an index gives, so that no page reads
more than itself. Changes no event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from outbox.errors import NotFound, OutboxError, UsageError
from outbox.ops.stored_event import StoredEvent
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.document import Naming
from outbox.policy.event import FANOUT, Status
from outbox.policy.inputs import EventFilter
from outbox.policy.redact import masked

if TYPE_CHECKING:
    from outbox.store.browsing import PostgresBrowsing

_LAST_SEQ: Final = 2**63 - 1
_LAST_PLACE: Final = (datetime(9999, 1, 1, tzinfo=UTC), UUID(int=2**128 - 1))


class Shelf(StrEnum):
    OPEN = "open"
    FAILED = "failed"
    DONE = "done"
    DISCARDED = "discarded"


_OF_STATUS: Final = {
    Status.PENDING: Shelf.OPEN,
    Status.PROCESSING: Shelf.OPEN,
    Status.FAILED: Shelf.FAILED,
    Status.DONE: Shelf.DONE,
    Status.DISCARDED: Shelf.DISCARDED,
}
_LISTS: Final = {Shelf.FAILED: "list_failed", Shelf.DONE: "list_done", Shelf.DISCARDED: "list_discarded"}
_BY_DEFAULT: Final = (Status.PENDING, Status.PROCESSING, Status.FAILED)


@dataclass(frozen=True, slots=True)
class ListPlace:
    shelf: Shelf
    statuses: tuple[str, ...] = ()
    before_seq: int = _LAST_SEQ
    before: tuple[datetime, UUID] = field(default=_LAST_PLACE)

    def __str__(self) -> str:
        if self.shelf is Shelf.OPEN:
            return f"{self.shelf}:{self.before_seq}"
        at, id = self.before
        return f"{self.shelf}:{at.isoformat()}:{id}"


def places(statuses: Collection[str], *, everything: bool) -> list[ListPlace]:
    """The shelves that hold these states, in the order of the list."""
    wanted = [_status(name) for name in statuses] or list(Status if everything else _BY_DEFAULT)
    shelves = dict.fromkeys(_OF_STATUS[status] for status in sorted(wanted, key=list(_OF_STATUS).index))
    return [ListPlace(shelf, tuple(str(s) for s in wanted if _OF_STATUS[s] is shelf)) for shelf in shelves]


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UsageError(f"status {name[:80]!r} is none of {', '.join(Status)}") from None


def next_place(
    place: ListPlace, wanted: Sequence[ListPlace], last: StoredEvent | None, *, more: bool
) -> ListPlace | None:
    """Behind the last row of this page, or the beginning of the next shelf, or the end."""
    if more and last is not None:
        return _behind(place, last)
    here = next(n for n, each in enumerate(wanted) if each.shelf is place.shelf)
    return wanted[here + 1] if here + 1 < len(wanted) else None


def _behind(place: ListPlace, last: StoredEvent) -> ListPlace:
    if place.shelf is Shelf.OPEN:
        return replace(place, before_seq=last.seq or 0)
    at = last.failed_at if place.shelf is Shelf.FAILED else last.processed_at
    return replace(place, before=(at or _LAST_PLACE[0], last.id))


def read_place(text: str, wanted: Sequence[ListPlace]) -> ListPlace:
    """A place that an earlier page named; anything else is refused, because it could only skip rows."""
    shelf, _, rest = text.partition(":")
    place = next((each for each in wanted if each.shelf == shelf), None)
    try:
        if place is None:
            raise ValueError(shelf)
        if place.shelf is Shelf.OPEN:
            return replace(place, before_seq=_seq(rest))
        at, _, id = rest.rpartition(":")
        read = datetime.fromisoformat(at)
        return replace(place, before=(read if read.tzinfo else read.replace(tzinfo=UTC), UUID(id)))
    except ValueError:
        raise UsageError("invalid cursor: use the one that the page before named") from None


def _seq(text: str) -> int:
    """A number that PostgreSQL can compare: digits beyond its bigint are nobody's."""
    if not (text.isascii() and text.isdecimal()) or (seq := int(text[:20])) > _LAST_SEQ:
        raise ValueError(text)
    return seq


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
        wanted = places(statuses, everything=bool(asked.ids or asked.entity_id is not None))
        place = read_place(after, wanted) if after else wanted[0]
        found: list[StoredEvent] = []
        following: ListPlace | None = place
        while following is not None and len(found) < limit:
            rows = self._shelf(asked, following, limit - len(found) + 1)
            page = [StoredEvent.of(row) for row in rows][: limit - len(found)]
            found += page
            more = len(rows) > len(page)
            following = next_place(following, wanted, page[-1] if page else None, more=more)
        return EventPage(found, str(following) if following else "", self._remark(asked, wanted))

    def _shelf(self, asked: EventFilter, place: ListPlace, limit: int) -> Sequence[Row]:
        if place.shelf is Shelf.OPEN:
            statuses = list(place.statuses)
            return self._store.page("list_open", asked, limit=limit, statuses=statuses, before_seq=place.before_seq)
        deletes_only = place.shelf is Shelf.DONE and self._searches_deletes_only(asked)
        query = "list_done_deletes" if deletes_only else _LISTS[place.shelf]
        return self._store.page(query, asked, limit=limit, before_at=place.before[0], before_id=place.before[1])

    def _searches_deletes_only(self, asked: EventFilter) -> bool:
        """An entity's done events without an index for them: a scan of all that was ever done."""
        return asked.entity_id is not None and not asked.ids and not self._store.finds_done_by_entity()

    def _remark(self, asked: EventFilter, wanted: Sequence[ListPlace]) -> str:
        if any(place.shelf is Shelf.DONE for place in wanted) and self._searches_deletes_only(asked):
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
