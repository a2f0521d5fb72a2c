"""Reads the events of named entities, many at a time: the newest, the open, the failed. Changes none of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, LiteralString

from psycopg import sql

from outbox.errors import DocumentsUnavailable
from outbox.policy.drift import Key, Truth
from outbox.store.base import TopicStore
from outbox.store.filters import entity_id_type
from outbox.store.pool import Database, QueryCancelled
from outbox.store.schema.state import has_by_entity
from outbox.store.view_shape import names_an_id

PAGE_LIMIT_MS: Final = 60_000
SCAN_LIMIT_MS: Final = 120_000
MOST_TYPES: Final = 10_000
MANY_WAITING: Final = 1_000  # two batches: more is a backlog, not a busy moment
MOST_BACKLOG: Final = 100_000  # 100,000 open rows are read in 100 ms
Row = tuple[Any, ...]


def rows(
    database: Database, query: LiteralString | sql.Composed, named: Mapping[str, object], limit_ms: int = PAGE_LIMIT_MS
) -> list[Row]:
    """One short snapshot. What takes too long lacks an index, and is reported as such."""
    try:
        with database.transaction(read_only=True, timeout_ms=limit_ms) as connection:
            return connection.execute(query, named).fetchall()
    except QueryCancelled as error:
        raise DocumentsUnavailable(f"a page took over {limit_ms // 1000} s; is there an index?") from error


def rows_of(
    database: Database,
    query: sql.Composed,
    keys: Sequence[Key],
    names: Callable[[str], bool],
    **named: object,
) -> list[Row]:
    """A query over keys, whose first column is a key's place, from 1. Ids that the column cannot hold have no row."""
    fits = [place for place, key in enumerate(keys, 1) if names(key.entity_id)]
    if not fits:
        return []
    named["types"] = [keys[place - 1].entity_type for place in fits]
    named["ids"] = [keys[place - 1].entity_id for place in fits]
    found = rows(database, query, named)
    return [(fits[row[0] - 1] if row[0] else 0, *row[1:]) for row in found]


class EntityEvents(TopicStore, topic="truth"):
    """By the entity index where it is (`by_entity`); some questions have a slower way without it."""

    @cached_property
    def by_entity(self) -> bool:
        with self._database.connection() as connection:
            return has_by_entity(connection)

    def keys(self, entity_type: str, after: str | None, limit: int, until: str | None = None) -> list[str]:
        query = self._query("event_keys", after=after is not None and self._names(after))
        named = {"entity_type": entity_type, "after": after, "until": until, "limit": limit}
        return [row[0] for row in rows(self._database, query, named)]

    def present(self, keys: Sequence[Key]) -> set[Key]:
        return {keys[row[0] - 1] for row in self._of("events_present", keys)}

    def newest(self, keys: Sequence[Key], *, whole: bool, done: bool) -> dict[Key, Truth]:
        """`done`: what the index was made from; otherwise what it should hold once all is settled."""
        found = {row[0]: row for row in self._of("newest", keys, whole=whole, done=done)}
        return {key: _truth(key, found.get(place)) for place, key in enumerate(keys, 1)}

    def backlog_waits(self) -> bool:
        return bool(rows(self._database, self._query("backlog_waits"), {"many": MANY_WAITING})[0][0])

    def open_of(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Those with an open event; all of them where the backlog is too long to be searched."""
        name, named = ("open_of", {}) if self.by_entity else ("open_of_backlog", {"most": MOST_BACKLOG})
        places = {row[0] for row in self._of(name, keys, **named)}
        return frozenset(key for place, key in enumerate(keys, 1) if 0 in places or place in places)

    def failed_of(self, keys: Sequence[Key]) -> Mapping[Key, int]:
        """The highest version that failed, of those that have a failed event."""
        return {keys[row[0] - 1]: row[1] for row in self._of("failed_of", keys)}

    def _of(self, name: str, keys: Sequence[Key], **named: object) -> list[Row]:
        return rows_of(self._database, self._query(name), keys, self._names, **named)

    def _names(self, text: str) -> bool:
        return names_an_id(text, self.id_type)

    def _query(self, name: str, *, after: bool = False) -> sql.Composed:
        id_type = sql.SQL(self.id_type)
        later = sql.SQL("entity_id > %(after)s::") + id_type if after else sql.SQL("true")
        return sql.SQL(self._sql[name]).format(entity_id_type=id_type, later=later)

    @cached_property
    def id_type(self) -> LiteralString:
        """From PostgreSQL's own catalogue, never from a person."""
        with self._database.connection() as connection:
            found: LiteralString = entity_id_type(connection)
            return found


def _truth(key: Key, row: Row | None) -> Truth:
    if row is None:
        return Truth(key, foreign="no event of this entity is left")
    _, op, version, routing, body, size = row
    if op == "delete":
        return Truth(key, None, version, routing)
    if size is None:
        return Truth(key, None, version, routing, "its type is kept by payloads, and its newest event has none")
    return Truth(key, body, version, routing, None, 0 if body is not None else size)
