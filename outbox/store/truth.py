"""Reads what PostgreSQL says the index should hold: the view, or each entity's newest event. Writes nothing.

An entity type that the view has is read from the view; any other from the events, which needs the entity index.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, LiteralString, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from outbox.errors import DatabaseDown, DocumentsUnavailable, OutboxError
from outbox.policy.drift import Key, Truth
from outbox.store.documents import ViewDocuments
from outbox.store.events import entity_id_type
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.schema_state import has_by_entity

PAGE_LIMIT_MS: Final = 60_000
SCAN_LIMIT_MS: Final = 120_000
MOST_TYPES: Final = 10_000
MOST_BACKLOG: Final = 100_000  # 100,000 open rows are read in 100 ms
_INTEGER: Final = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class NeedsEntityIndex(OutboxError):
    """Without a view of documents each entity's newest event is what counts, and that needs an index, or every page
    would read the whole table. Run `outbox migrate --by-entity`, or create the view (OUTBOX_DOCUMENTS names it)."""

    exit_code = 78


class Wanted(NamedTuple):
    """A key as `ViewDocuments.load` asks for it."""

    id: UUID
    entity_type: str
    entity_id: str


class PostgresTruth:
    """One comparison's look at PostgreSQL. Every call is a short transaction of its own."""

    def __init__(self, database: Database, view: str) -> None:
        self._database = database
        self._documents = ViewDocuments(database, view)
        self._view = view
        self._sql = queries("truth")
        self._types_asked: dict[str, bool] = {}

    # What there is

    @cached_property
    def has_view(self) -> bool:
        return self._documents.exists()

    @cached_property
    def by_entity(self) -> bool:
        with self._database.connection() as connection:
            return has_by_entity(connection)

    @cached_property
    def view_types(self) -> frozenset[str]:
        if not self.has_view:
            return frozenset()
        rows = self._rows(self._in_view("view_types"), {"most": MOST_TYPES}, SCAN_LIMIT_MS)
        return frozenset(row[0] for row in rows)

    def in_view(self, entity_type: str) -> bool:
        """Whether the view has this type. Asked for the one where not all are known: whoever means one entity must not
        wait for a pass over the view."""
        if not self.has_view or "view_types" in self.__dict__:
            return entity_type in self.view_types
        if entity_type not in self._types_asked:
            row = self._rows(self._in_view("view_has_type"), {"entity_type": entity_type})[0]
            self._types_asked[entity_type] = bool(row[0])
        return self._types_asked[entity_type]

    def types(self) -> list[str]:
        """All entity types that can be walked. Raises NeedsEntityIndex where there is nothing to walk by."""
        if not self.has_view and not self.by_entity:
            raise NeedsEntityIndex
        found = set(self.view_types)
        if self.by_entity:
            found |= {row[0] for row in self._rows(self._sql["event_types"], {"most": MOST_TYPES})}
        return sorted(found)

    def types_out_of_sight(self) -> list[str]:
        """Types whose documents travel in events, as far as the newest events tell, and cannot be walked."""
        if self.by_entity or not self.has_view:
            return []
        lately = self._rows(self._sql["lately_with_payload"], {"most": 10_000})
        return sorted({row[0] for row in lately} - self.view_types)

    # Walking

    def keys(self, entity_type: str, after: str | None, limit: int) -> list[str]:
        """One page of a type's ids, in the order of their own type. After what no id can be comes the first page."""
        kind = self._view_id_type if self.in_view(entity_type) else self._event_id_type
        after = after if after is None or castable(after, kind) else None
        named = {"entity_type": entity_type, "after": after, "limit": limit}
        if self.in_view(entity_type):
            query = self._in_view("view_first_keys" if after is None else "view_next_keys")
        else:
            query = self._of_events("event_first_keys" if after is None else "event_next_keys")
        try:
            return [row[0] for row in self._rows(query, named)]
        except psycopg.DataError as error:
            told = f"{self._view} cannot list its keys: SQLSTATE {error.sqlstate}, {type(error).__name__}"
            raise DocumentsUnavailable(told) from error

    def present(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Those that should have a document; cheaper than `load`, which builds it."""
        in_view, rest = self._parted(keys)
        rows = self._of_keys(self._in_view("view_present"), in_view, self._view_id_type) if in_view else []
        found = {in_view[row[0] - 1] for row in rows}
        if rest and self.by_entity:
            found |= {rest[row[0] - 1] for row in self._of_keys(self._of_events("events_present"), rest)}
        return frozenset(found)

    def load(self, keys: Sequence[Key], *, whole: bool = False, done: bool = False) -> list[Truth]:
        """What is said of each, in order. Large documents come only with `whole`: one at a time.

        `done` asks for what the index was made from, where events are asked: not for what is still on its way.
        """
        found: dict[Key, Truth] = {}
        in_view, rest = self._parted(keys)
        found.update(self._from_view(in_view, whole))
        found.update(self._from_events(rest, whole, "newest_done" if done else "newest"))
        return [found[key] for key in keys]

    def _parted(self, keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        viewed = {kind for kind in {key.entity_type for key in keys} if self.in_view(kind)}
        return [k for k in keys if k.entity_type in viewed], [k for k in keys if k.entity_type not in viewed]

    def _from_view(self, keys: Sequence[Key], whole: bool) -> Iterator[tuple[Key, Truth]]:
        fits = [key for key in keys if castable(key.entity_id, self._view_id_type)]
        wanted = [Wanted(UUID(int=place), *key) for place, key in enumerate(fits)]
        loaded = self._documents.load(wanted, whole=whole) if wanted else {}
        for want, key in zip(wanted, fits, strict=True):
            document = loaded[want.id]
            failure = None if document.failure is None else document.failure.error
            text = None if document.body is None else document.body.decode()
            size = (document.size_bytes or 0) if text is None and failure is None else 0
            yield key, Truth(key, text, document.version, None, failure, size)
        for key in set(keys).difference(fits):
            yield key, Truth(key)  # no row of the view can have such an id

    def _from_events(self, keys: Sequence[Key], whole: bool, query: str) -> Iterator[tuple[Key, Truth]]:
        if not self.by_entity:
            yield from ((key, Truth(key, foreign="the view has no entity of this type")) for key in keys)
            return
        found = {row[0]: row for row in self._of_keys(self._of_events(query), keys, whole=whole)}
        for place, key in enumerate(keys, 1):
            yield key, _truth_of_event(key, found.get(place))

    # Whether it may be judged now

    def open_of(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Those with an open event; all of them where the backlog is too long to be looked through."""
        if self.by_entity:
            rows = self._of_keys(self._of_events("open_of"), keys)
        else:
            rows = self._of_keys(self._of_events("open_of_backlog"), keys, most=MOST_BACKLOG)
        places = {row[0] for row in rows}
        return frozenset(key for place, key in enumerate(keys, 1) if 0 in places or place in places)

    def failed_of(self, keys: Sequence[Key]) -> Mapping[Key, int]:
        """The highest version that failed, of those that have a failed event."""
        return {keys[row[0] - 1]: row[1] for row in self._of_keys(self._of_events("failed_of"), keys)}

    def newest_versions(self, keys: Sequence[Key]) -> Mapping[Key, tuple[int, str | None]]:
        """The highest event version and the routing of each. Without the entity index one pass over all events."""
        if self.by_entity:
            rows = self._of_keys(self._of_events("newest_versions"), keys)
        else:
            rows = self._of_keys(self._of_events("newest_versions_by_scan"), keys, limit_ms=SCAN_LIMIT_MS)
        return {keys[row[0] - 1]: (row[1], row[2]) for row in rows}

    # Asking

    def _of_keys(
        self,
        query: sql.Composed,
        keys: Sequence[Key],
        id_type: str | None = None,
        *,
        limit_ms: int = PAGE_LIMIT_MS,
        **named: object,
    ) -> list[tuple[Any, ...]]:
        """A query over keys, whose first column is a key's place. Ids that the column cannot hold have no row."""
        kind = id_type or self._event_id_type
        fits = [place for place, key in enumerate(keys, 1) if castable(key.entity_id, kind)]
        if not fits:
            return []
        named["types"] = [keys[place - 1].entity_type for place in fits]
        named["ids"] = [keys[place - 1].entity_id for place in fits]
        rows = self._rows(query, named, limit_ms)
        return [(fits[row[0] - 1] if row[0] else 0, *row[1:]) for row in rows]

    def _rows(
        self, query: LiteralString | sql.Composed, named: Mapping[str, object], limit_ms: int = PAGE_LIMIT_MS
    ) -> list[tuple[Any, ...]]:
        try:
            with self._database.transaction(read_only=True, timeout_ms=limit_ms) as connection:
                return connection.execute(query, named).fetchall()
        except DatabaseDown as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise DocumentsUnavailable(f"a page took over {limit_ms // 1000} s; is there an index?") from error
            raise

    def _in_view(self, name: str) -> sql.Composed:
        return sql.SQL(self._sql[name]).format(
            view=sql.Identifier(*self._view.split(".")), id_type=sql.SQL(self._view_id_type)
        )

    def _of_events(self, name: str) -> sql.Composed:
        return sql.SQL(self._sql[name]).format(entity_id_type=sql.SQL(self._event_id_type))

    @cached_property
    def _view_id_type(self) -> LiteralString:
        return self._documents.id_type()

    @cached_property
    def _event_id_type(self) -> LiteralString:
        with self._database.connection() as connection:
            return _literal(entity_id_type(connection))


def castable(text: str, type_name: str) -> bool:
    """Whether a column of this type could hold it; types that are not known here take any text."""
    if type_name in _INTEGER and text.isascii() and text.isdigit() and len(text) < 5:
        return True
    if "\x00" in text:
        return False
    if type_name == "uuid":
        return _UUID.fullmatch(text) is not None
    if limit := _INTEGER.get(type_name):
        return re.fullmatch(r"-?\d{1,19}", text) is not None and -limit <= int(text) < limit
    return True


def _literal(type_name: str) -> LiteralString:
    """From PostgreSQL's own catalogue, never from a person."""
    return type_name


def _truth_of_event(key: Key, row: tuple[Any, ...] | None) -> Truth:
    if row is None:
        return Truth(key, foreign="no event of this entity is left")
    _, op, version, routing, body, size = row
    if op == "delete":
        return Truth(key, None, version, routing)
    if size is None:
        return Truth(key, None, version, routing, "its newest event has no payload, and no view has this entity type")
    return Truth(key, body, version, routing, None, 0 if body is not None else size)
