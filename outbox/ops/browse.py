"""Events as people see them: one with all that is recorded about it, or a page of them. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from outbox.errors import NotFound
from outbox.ops.pages import Place, Shelf, first_place, next_place, places, read_place
from outbox.ops.stored import StoredEvent
from outbox.policy.filter import EventFilter
from outbox.policy.masking import masked

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


class Store(Protocol):
    def event(self, id: UUID) -> Row | None: ...
    def attempts(self, id: UUID) -> Sequence[Row]: ...
    def acts(self, id: UUID) -> Sequence[Row]: ...
    def related(self, id: UUID, entity_type: str, entity_id: str) -> Sequence[Row]: ...
    def finds_done_by_entity(self) -> bool: ...
    def open_page(
        self, asked: EventFilter, statuses: Collection[str], before_seq: int, limit: int
    ) -> Sequence[Row]: ...
    def failed_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]: ...
    def done_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]: ...
    def done_deletes_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]: ...
    def discarded_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]: ...


class Address(Protocol):
    """Which document an event means: index and `_id`."""

    def __call__(self, entity_type: str, entity_id: str) -> tuple[str, str]: ...


class Browse:
    def __init__(self, store: Store, address: Address, redact_fields: Collection[str] = ()) -> None:
        self._store = store
        self._address = address
        self._redact_fields = redact_fields

    def show(self, id: UUID) -> EventDetail:
        row = self._store.event(id)
        if row is None:
            raise NotFound(f"event {id}")
        event = StoredEvent.of(row)
        index, document_id = self._address(event.entity_type, event.entity_id)
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
            related=self._store.related(id, event.entity_type, event.entity_id),
        )

    def page(self, asked: EventFilter, statuses: Collection[str] = (), limit: int = 50, after: str = "") -> EventPage:
        """Open events by their number, then failed, done and discarded ones by their time; the newest of each first.

        No status named: what is open or failed; with ids or an entity id, whatever state it is in.
        """
        limit = max(1, min(limit, MOST_LISTED))
        wanted = places(statuses, everything=bool(asked.ids or asked.entity_id is not None))
        place = read_place(after, wanted) if after else first_place(wanted)
        found: list[StoredEvent] = []
        following: Place | None = place
        while following is not None and len(found) < limit:
            rows = self._shelf(asked, following, limit - len(found) + 1)
            page = [StoredEvent.of(row) for row in rows][: limit - len(found)]
            found += page
            more = len(rows) > len(page)
            following = next_place(following, wanted, page[-1] if page else None, more=more)
        return EventPage(found, str(following) if following else "", self._remark(asked, wanted))

    def _shelf(self, asked: EventFilter, place: Place, limit: int) -> Sequence[Row]:
        match place.shelf:
            case Shelf.OPEN:
                return self._store.open_page(asked, place.statuses, place.before_seq, limit)
            case Shelf.FAILED:
                return self._store.failed_page(asked, place.before, limit)
            case Shelf.DISCARDED:
                return self._store.discarded_page(asked, place.before, limit)
            case Shelf.DONE if self._searches_deletes_only(asked):
                return self._store.done_deletes_page(asked, place.before, limit)
            case _:
                return self._store.done_page(asked, place.before, limit)

    def _searches_deletes_only(self, asked: EventFilter) -> bool:
        """An entity's done events without an index for them: a scan of all that was ever done."""
        return asked.entity_id is not None and not asked.ids and not self._store.finds_done_by_entity()

    def _remark(self, asked: EventFilter, wanted: Sequence[Place]) -> str:
        if any(place.shelf is Shelf.DONE for place in wanted) and self._searches_deletes_only(asked):
            return (
                "of the entity's done events only deletes were searched; `outbox migrate --by-entity` adds the index "
                "for the others"
            )
        return ""
