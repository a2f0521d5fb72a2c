"""Reads single events and lists of them for people, each read bounded in rows and time. Changes nothing."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from outbox.errors import NotPermitted
from outbox.policy.inputs import EventFilter
from outbox.ports import EntityWait
from outbox.store.filters import event_filter
from outbox.store.pool import BY_INDEX, BoundedStore, bounded_read, fetch_rows
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
            return fetch_rows(connection, self._typed(query, connection), named)

    def finds_done_by_entity(self) -> bool:
        with self._database.connection() as connection:
            return has_by_entity(connection)

    def page(self, shelf: str, asked: EventFilter, **place: object) -> Sequence[Row]:
        with bounded_read(self._database, plans=BY_INDEX) as connection:
            return fetch_rows(connection, self._sql[shelf], {**place, **event_filter(connection, asked)})
