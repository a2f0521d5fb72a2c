"""Looks up documents in the view that the user defines, one query per batch. `parts` says which row is at fault."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import orjson
import psycopg
from psycopg import Connection, sql

from outbox.errors import DatabaseDown, DocumentsUnavailable, NotPermitted, SchemaMismatch
from outbox.policy.document import not_an_object, refused
from outbox.policy.outcome import Code
from outbox.ports import Clock, Document, Named
from outbox.store.events import inline_bytes
from outbox.store.lookup_in_parts import NOT_READ, LookupLimits, PartwiseRead, Suspects
from outbox.store.pool import Database, QueryCancelled, TopicStore
from outbox.store.view_shape import TEXTS, UnsupportedIds, ViewShape, read_shape

GONE = Document(None, None, None)
UNREAD = Document(None, None, None, NOT_READ)
PAGE_MS: Final = 60_000  # of many documents in key order, for nobody's lease
KNOWN_SECONDS: Final = 60.0  # what the view is like is asked again after that
_ENTITY_ID: Final = attrgetter("entity_id")
# `Document(...)` without its frame in Python.
_DOCUMENT: Final = cast(Callable[[tuple[Any, ...]], Document], partial(tuple.__new__, Document))


class Made(NamedTuple):
    shape: ViewShape
    at: float
    queries: dict[str, sql.Composed]


class ViewDocuments(TopicStore, topic="documents"):
    """The view `search_documents(entity_type, entity_id, document)`, with `routing` if it has it."""

    def __init__(
        self,
        database: Database,
        view: str,
        *,
        batch_bytes: int,
        most_bytes: int | None = None,
        clock: Clock = time.monotonic,
        limits: LookupLimits = LookupLimits(),  # noqa: B008
    ) -> None:
        super().__init__(database)
        self._batch_bytes = batch_bytes
        self._most_bytes = most_bytes  # of one document; of a larger one only the size is known
        self._view = view
        self._clock = clock
        self._limits = limits
        self._made: Made | None = None
        self._suspects = Suspects(clock)

    def exists(self) -> bool:
        return bool(self.shape().columns)

    def usable(self) -> bool:
        """Whether there is one. Raises UnsupportedIds where its ids have a type that cannot name documents."""
        shape = self.shape()
        shape.check_ids()
        return bool(shape.columns)

    def shape(self) -> ViewShape:
        with self._database.connection() as connection:
            return read_shape(connection, self._view)

    def draw(self) -> int:
        """In its own statement and transaction: the reads that follow see all that was committed before it. What they
        read may not be older, so a view that was ordinary and is materialised by now is read anew, and refused."""
        try:
            version, materialised, _ = self._one("draw", view=self._view) or (0, None, None)
        except NotPermitted as error:  # the schema of the view is closed to us by now
            self._made = None
            raise DocumentsUnavailable(f"{self._view}: {error.detail}") from error
        if materialised:
            self._made = None
        return int(version)

    def types_in_view(self, types: Sequence[str]) -> set[str]:
        """Of these types, those that the view has an entity of. Raises DocumentsUnavailable."""
        try:
            with self._asking() as connection:
                query = self._query(connection, "types_in_view")
                return {row[0] for row in connection.execute(query, {"types": list(types)}).fetchall()}
        except psycopg.Error as error:  # of a function that is run for each row
            raise DocumentsUnavailable(f"{self._view}: SQLSTATE {error.sqlstate}") from error

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        """Every event gets an answer. Those that are left out for their size come with `whole`. A view that was
        replaced since it was last read is read anew, once."""
        before = self._made
        try:
            found = self._load(events, whole)
            if before is None or not any(each.failure for each in found.values()):
                return found
            with self._asking() as connection:
                if self._make(connection).shape == before.shape:
                    return found
        except DocumentsUnavailable as error:
            if before is None or not isinstance(error.__cause__, SchemaMismatch):
                raise
        return self._load(events, whole)

    def _load(self, events: Sequence[Named], whole: bool) -> Mapping[UUID, Document]:
        """What may come along is that of the whole batch, also where it is read in parts."""
        beyond = None if self._most_bytes is None else self._most_bytes + 1
        most_bytes = beyond if whole else inline_bytes(self._batch_bytes, len(events))
        named, gone = self._named(events)
        # Made first: the time of a whole read that fails counts.
        reading = PartwiseRead(
            lambda part, limit_ms: self._read(part, limit_ms, most_bytes), self._limits, self._suspects, self._clock
        )
        failed: Exception | None = None
        if not self._suspects.until:
            try:
                found = self._read(named, self._limits.whole_ms, most_bytes) if named else {}
                return {**gone, **found} if gone else found
            except (psycopg.Error, DatabaseDown) as error:
                failed = error
        try:
            reading.run(named, failed)
        except psycopg.Error as error:
            raise DocumentsUnavailable(f"{self._view}: SQLSTATE {error.sqlstate}") from error
        if reading.last_error is not None and not reading.found and not self._finds_blamed(reading, named):
            detail = f"a lookup in {self._view} took over {self._limits.whole_ms / 1000:g} s, and so did parts of it"
            raise DocumentsUnavailable(detail) from reading.last_error
        if len(reading.found) == len(events):
            return reading.found
        unread = dict.fromkeys((event.id for event in named), UNREAD)
        blamed = {id: Document(None, None, None, failure) for id, failure in reading.blamed.items()}
        return {**gone, **unread, **blamed, **reading.found}

    def _named(self, events: Sequence[Named]) -> tuple[Sequence[Named], dict[UUID, Document]]:
        """Those whose id a row of the view can have; the others are gone. Before that is said of anyone, the view is
        read anew: it may have been replaced by one with other ids."""
        made = self._made
        if made is not None and made.shape.id.base in TEXTS and "\x00" not in "".join(map(_ENTITY_ID, events)):
            return events, {}
        if made is not None and all(made.shape.id.names(event.entity_id) for event in events):
            return events, {}
        with self._asking() as connection:
            shape = self._make(connection).shape
        gone = GONE._replace(routed="routing" in shape.columns)
        nobodys = {event.id: gone for event in events if not shape.id.names(event.entity_id)}
        return [event for event in events if event.id not in nobodys], nobodys

    def _finds_blamed(self, reading: PartwiseRead, events: Sequence[Named]) -> bool:
        """Nothing could be read. Where the view finds a blamed row at once, its document is what takes so long. Any
        other view lacks an index or waits for a lock, and no row is at fault."""
        suspect = next((event for event in events if event.id in reading.blamed), None)
        if reading.hopeless or suspect is None:
            return False
        named = {"entity_type": suspect.entity_type, "entity_id": suspect.entity_id}
        try:
            with self._read_only(self._limits.part_ms) as connection:
                connection.execute(self._query(connection, "finds"), named)
        except (psycopg.Error, DatabaseDown):
            return False
        return True

    def _read(self, events: Sequence[Named], limit_ms: int, most_bytes: int | None) -> dict[UUID, Document]:
        parameters = asking_for([(e.entity_type, e.entity_id) for e in events], most_bytes)
        with self._read_only(limit_ms) as connection:
            cursor = connection.cursor(binary=True)
            rows = cursor.execute(self._query(connection, "look_up"), parameters).fetchall()
            routed = self._made is not None and "routing" in self._made.shape.columns
        found = [GONE._replace(routed=routed)] * len(events)
        for place, body, size, routing in rows:
            found[place - 1] = _document(body, size, routing, routed)
        return dict(zip([event.id for event in events], found, strict=True))

    def page(
        self, entity_type: str, after: str | None, limit: int, until: str | None = None
    ) -> list[tuple[str, Document]] | None:
        """One type's documents in key order, ids and documents by one statement. None: it cannot be read as a whole."""
        named = {"entity_type": entity_type, "after": after, "until": until, "limit": limit}
        named["inline_bytes"] = inline_bytes(self._batch_bytes, limit)
        try:
            with self._read_only(PAGE_MS) as connection:
                shape = (self._made or self._make(connection)).shape
                query = shape.query(self._sql["page"], after=after, until=until)
                rows = connection.cursor(binary=True).execute(query, named).fetchall()
        except (psycopg.Error, QueryCancelled):
            return None
        routed = "routing" in shape.columns
        return [(id, _document(body, size, place, routed)) for id, body, size, place in rows]

    @contextmanager
    def _asking(self) -> Iterator[Connection[Any]]:
        """For a question about the view as a whole, to which no row can be slow."""
        try:
            with self._read_only(self._limits.whole_ms) as connection:
                yield connection
        except QueryCancelled as error:
            detail = f"a query of {self._view} took over {self._limits.whole_ms / 1000:g} s"
            raise DocumentsUnavailable(detail) from error

    @contextmanager
    def _read_only(self, limit_ms: int) -> Iterator[Connection[Any]]:
        try:
            with self._database.transaction(read_only=True, timeout_ms=limit_ms) as connection:
                yield connection
        except (SchemaMismatch, UnsupportedIds) as error:  # gone, forbidden or changed since it was last read
            self._made = None
            raise DocumentsUnavailable(f"{self._view}: {error.detail}") from error

    def _query(self, connection: Connection[Any], name: str) -> sql.Composed:
        """Made for the view as it is. Lanes share this, so what belongs together is exchanged as one."""
        made = self._made
        if made is None or self._clock() - made.at > KNOWN_SECONDS:
            made = self._make(connection)
        if name not in made.queries:
            made.queries[name] = made.shape.query(self._sql[name])
        return made.queries[name]

    def _make(self, connection: Connection[Any]) -> Made:
        shape = read_shape(connection, self._view)
        shape.check()
        self._made = made = Made(shape, self._clock(), {})
        return made


def asking_for(entities: Sequence[tuple[str, str]], most_bytes: int | None) -> dict[str, Any]:
    types, ids = ([pair[place] for pair in entities] for place in (0, 1))
    return {
        "types": orjson.dumps(types).decode(),
        "entities": orjson.dumps(ids).decode(),
        "inline_bytes": most_bytes,
    }


def _document(body: bytes | None, size: int | None, routing: str | None, routed: bool) -> Document:
    failure = None
    if size is None:
        failure = refused("the view has this entity with a null document", Code.ENTITY_NOT_FOUND)
    elif body is not None and not body.startswith(b"{"):
        failure = not_an_object(body)
    return _DOCUMENT((body, size, None, failure, routing, routed))
