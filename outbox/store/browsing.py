"""Reads single events and lists of them for people, each read bounded in rows and time. Changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from outbox.errors import NotPermitted
from outbox.policy.inputs import EventFilter
from outbox.ports import EntityWait
from outbox.store.base import BoundedStore
from outbox.store.filters import TimeColumn, entity_id_type, event_where, text_of_id, typed
from outbox.store.pool import BY_INDEX, bounded_read, fetch_rows
from outbox.store.schema.state import has_by_entity

MOST_SHOWN_BYTES: Final = 1_048_576
MOST_ATTEMPTS: Final = 50
MOST_RELATED: Final = 20
SCAN_ROWS: Final = 10_000  # open rows that are searched for an entity: 10 ms

Row = Mapping[str, Any]


class PostgresBrowsing(BoundedStore, topic="browsing"):
    """Rows as they are, named by their columns; json comes as the producer's own bytes."""

    def event(self, id: UUID) -> Row | None:
        try:
            return self._row("show", id=id, most_bytes=MOST_SHOWN_BYTES)
        except NotPermitted:  # the reader's role
            return self._row("show_without_payload", id=id)

    def statuses(self, subjects: Collection[UUID | EntityWait]) -> Mapping[UUID | EntityWait, str]:
        """Leaves out what is not committed yet, and an entity where producers write to the event log."""
        ids = [each for each in subjects if isinstance(each, UUID)]
        found: dict[UUID | EntityWait, str] = {}
        if ids:
            found |= {row["id"]: row["status"] for row in self._rows("statuses", ids=ids)}
        if entities := [each for each in subjects if isinstance(each, EntityWait)]:
            found |= self._entity_statuses(entities)
        return found

    def _entity_statuses(self, entities: Sequence[EntityWait]) -> dict[UUID | EntityWait, str]:
        columns = {
            "types": [each.entity_type for each in entities],
            "entities": [each.entity_id for each in entities],
            "until": [each.until for each in entities],
        }
        found: dict[UUID | EntityWait, str] = {}
        for row in self._rows("entity_states", **columns):
            entity = entities[row["place"] - 1]
            entity.until = row["until"]
            found[entity] = row["status"]
        return found

    def attempts(self, id: UUID) -> Sequence[Row]:
        return self._rows("attempts", id=id, most=MOST_ATTEMPTS)

    def acts(self, id: UUID) -> Sequence[Row]:
        return self._rows("acts", id=id, most=MOST_ATTEMPTS)

    def related(self, id: UUID, entity_type: str, entity_id: str) -> Sequence[Row]:
        """Other events of the entity. Without the entity index done upserts are not searched."""
        named = {"id": id, "entity_type": entity_type, "entity_id": entity_id, "most": MOST_RELATED, "scan": SCAN_ROWS}
        with self._connection() as connection:
            query = "related_by_index" if has_by_entity(connection) else "related"
            return fetch_rows(connection, typed(self._sql[query], entity_id_type(connection)), named)

    def finds_done_by_entity(self) -> bool:
        with self._database.connection() as connection:
            return has_by_entity(connection)

    def open_page(self, asked: EventFilter, statuses: Collection[str], before_seq: int, limit: int) -> Sequence[Row]:
        named = {"statuses": list(statuses), "before_seq": before_seq, "limit": limit}
        return self._page("list_open", asked, "created_at", named)

    def failed_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]:
        return self._page_before("list_failed", asked, "failed_at", before, limit)

    def done_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]:
        return self._page_before("list_done", asked, "processed_at", before, limit)

    def done_deletes_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]:
        return self._page_before("list_done_deletes", asked, "processed_at", before, limit)

    def discarded_page(self, asked: EventFilter, before: tuple[datetime, UUID], limit: int) -> Sequence[Row]:
        return self._page_before("list_discarded", asked, "processed_at", before, limit)

    def _page_before(
        self, query: str, asked: EventFilter, time: TimeColumn, before: tuple[datetime, UUID], limit: int
    ) -> Sequence[Row]:
        return self._page(query, asked, time, {"before_at": before[0], "before_id": before[1], "limit": limit})

    def _page(self, query: str, asked: EventFilter, time: TimeColumn, named: Mapping[str, object]) -> Sequence[Row]:
        with bounded_read(self._database, plans=BY_INDEX) as connection:
            id_type = entity_id_type(connection)
            where = event_where(asked, time, id_type)
            id_text = None if asked.entity_id is None else text_of_id(asked.entity_id, id_type)
            return fetch_rows(
                connection, where.into(self._sql[query]), {**named, **where.parameters, "id_text": id_text}
            )
