"""Looks up documents in the view that the user defines, one query a batch. Decides only which row is to blame."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, NamedTuple
from uuid import UUID

import psycopg
from psycopg import Connection, sql

from outbox.errors import DatabaseDown, DocumentsUnavailable, SchemaMismatch
from outbox.policy.document import not_an_object, refused
from outbox.policy.memory import inline_bytes
from outbox.policy.outcome import Code, Failure
from outbox.ports import Clock, Document, Named
from outbox.store.pool import Database
from outbox.store.queries import queries

GONE = Document(None, None, None)
TIMEOUT_MS = 10_000  # a lookup slower than this is a view without its index: the lease must not wait for it
COLUMNS: Final = frozenset({"entity_type", "entity_id", "document"})
_OPTIONAL: Final[Mapping[str, LiteralString]] = {"version": "bigint", "routing": "text"}
KNOWN_SECONDS: Final = 60.0  # what the view says of a type as a whole is asked again after that
MOST_LOOKED_AT: Final = 10_000  # of the newest done events, for what kind of documents a type has
# What one row can do: 22 its values, 21 a subquery that finds two rows, P0, 38, 39 and 2F what a function raises.
_OF_ONE_ROW = ("22", "21", "P0", "38", "39", "2F")


class TypeInView(NamedTuple):
    """What the view has, or has had, of one entity type. Where it has none, whether payloads make its documents."""

    there: bool = False
    versioned: bool = False
    by_payloads: bool = False
    asked_at: float = float("-inf")


class Made(NamedTuple):
    """Queries for the columns of the view, as they were at a time."""

    columns: Mapping[str, LiteralString]
    at: float
    queries: dict[str, sql.Composed]


class ViewDocuments:
    """The view `search_documents(entity_type, entity_id, document)`, with `version` and `routing` if it has them."""

    def __init__(self, database: Database, view: str, *, batch_bytes: int, clock: Clock = time.monotonic) -> None:
        self._database = database
        self._batch_bytes = batch_bytes
        self._view = view
        self._clock = clock
        self._sql = queries("documents")
        self._made: Made | None = None
        self._types: dict[str, TypeInView] = {}

    def exists(self) -> bool:
        """Asked at the start: without the view, upserts without a payload fail instead of waiting for it."""
        with self._database.connection() as connection:
            return bool(self._shape(connection))

    def id_type(self) -> LiteralString:
        """The type of the view's own ids, from PostgreSQL's catalogue."""
        with self._database.connection() as connection:
            return self._shape(connection).get("entity_id", "text")

    def draw(self) -> int:
        """In its own statement and transaction: the reads that follow see all that was committed before it."""
        with self._database.connection() as connection:
            row = connection.execute(self._sql["draw"]).fetchone()
            assert row is not None
            return int(row[0])

    def keeps(self, entity_type: str) -> bool:
        kind = self._type(entity_type)
        return kind.there and not kind.versioned

    def keeps_versions(self, entity_type: str) -> bool:
        return self._type(entity_type).versioned

    def made_by_payloads(self, entity_type: str) -> bool:
        kind = self._type(entity_type)
        return kind.by_payloads and not kind.there

    def _type(self, entity_type: str) -> TypeInView:
        """Asked once a minute. What it had once counts as long as the view is the same: its last entity may go."""
        known = self._types.get(entity_type, TypeInView())
        asked_at = self._clock()
        if asked_at - known.asked_at <= KNOWN_SECONDS:
            return known
        try:
            with self._read_only() as connection:
                row = connection.execute(self._query(connection, "has_type"), {"entity_type": entity_type}).fetchone()
                assert row is not None
                there, versioned = row[0] or known.there, row[1] or known.versioned
                by_payloads = not there and entity_type in self._lately_with_payload(connection)
        except DocumentsUnavailable:
            return known  # a view that is away keeps nobody from deleting what it never had
        found = self._types[entity_type] = TypeInView(there, versioned, by_payloads, asked_at)
        return found

    def _lately_with_payload(self, connection: Connection[Any]) -> set[str]:
        """By the newest done events: a type that has had none among them is not known for it."""
        rows = connection.execute(queries("truth")["lately_with_payload"], {"most": MOST_LOOKED_AT}).fetchall()
        return {row[0] for row in rows}

    def _note(self, events: Sequence[Named], found: Mapping[UUID, Document]) -> None:
        """What was read tells of its type: the last entity may be gone when someone asks."""
        for event in events:
            document = found[event.id]
            if document.size_bytes is not None and not self._types.get(event.entity_type, TypeInView()).there:
                self._types[event.entity_type] = TypeInView(there=True)
            if document.version is not None and not self._types[event.entity_type].versioned:
                self._types[event.entity_type] = self._types[event.entity_type]._replace(versioned=True)

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        """Every event gets an answer. Those that are left out for their size come with `whole`."""
        found = self._load(events, None if whole else inline_bytes(self._batch_bytes, len(events)))
        self._note(events, found)
        return found

    def _load(self, events: Sequence[Named], most_bytes: int | None) -> dict[UUID, Document]:
        """A row whose expression fails is found by halving, and blamed alone. The halves are held together in the end:
        what may come along is that of the whole batch."""
        try:
            return self._read(events, most_bytes)
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith(_OF_ONE_ROW):
                raise DocumentsUnavailable(f"{self._view}: SQLSTATE {error.sqlstate}") from error
            if len(events) == 1:
                return {events[0].id: Document(None, None, None, _unreadable(error))}
        half = len(events) // 2
        return {**self._load(events[:half], most_bytes), **self._load(events[half:], most_bytes)}

    def _read(self, events: Sequence[Named], most_bytes: int | None) -> dict[UUID, Document]:
        parameters = {
            "ids": [e.id for e in events],
            "types": [e.entity_type for e in events],
            "entities": [e.entity_id for e in events],
            "inline_bytes": most_bytes,
        }
        with self._read_only() as connection:
            cursor = connection.cursor(binary=True)
            rows = cursor.execute(self._query(connection, "look_up"), parameters).fetchall()
            routed = self._made is not None and "routing" in self._made.columns
        gone = GONE._replace(routed=routed)
        found = {event.id: gone for event in events}
        for id, body, size, version, routing in rows:
            found[id] = _document(body, size, version)._replace(routing=routing, routed=routed)
        return found

    @contextmanager
    def _read_only(self) -> Iterator[Connection[Any]]:
        try:
            with self._database.transaction(read_only=True, timeout_ms=TIMEOUT_MS) as connection:
                yield connection
        except DatabaseDown as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise DocumentsUnavailable(f"a lookup in {self._view} took over {TIMEOUT_MS // 1000} s") from error
            raise
        except SchemaMismatch as error:  # gone, forbidden or changed since it was last read
            self._made = None
            raise DocumentsUnavailable(f"{self._view}: {error.detail}") from error

    def _query(self, connection: Connection[Any], name: str) -> sql.Composed:
        """Made for the columns that the view has; someone may replace it while this runs. Lanes share this, so what
        belongs together is exchanged as one."""
        made = self._made
        if made is None or self._clock() - made.at > KNOWN_SECONDS:
            columns = self._columns(connection)
            if made is not None and columns != made.columns:
                self._types = {}
            made = self._made = Made(columns, self._clock(), {})
        if name not in made.queries:
            made.queries[name] = over_view(self._sql[name], self._view, made.columns)
        return made.queries[name]

    def _columns(self, connection: Connection[Any]) -> dict[str, LiteralString]:
        shape = self._shape(connection)
        if missing := COLUMNS - shape.keys():
            what = ", ".join(sorted(missing))
            raise DocumentsUnavailable(f"{self._view} does not exist or lacks {what}")
        return shape

    def _shape(self, connection: Connection[Any]) -> dict[str, LiteralString]:
        name = sql.Identifier(*self._view.split(".")).as_string(connection)
        return dict(connection.execute(self._sql["shape"], {"view": name}).fetchall())


def over_view(query: LiteralString, view: str, columns: Mapping[str, LiteralString]) -> sql.Composed:
    """A query of `documents.sql` for a view with these columns."""
    optional = {
        column: (sql.Identifier("d", column) if column in columns else sql.SQL("null")) + sql.SQL("::" + type_name)
        for column, type_name in _OPTIONAL.items()
    }
    id_type = sql.SQL(columns["entity_id"])
    return sql.SQL(query).format(view=sql.Identifier(*view.split(".")), id_type=id_type, **optional)


def _document(body: bytes | None, size: int | None, version: int | None) -> Document:
    if size is None:
        failure = refused("the view has this entity with a null document", Code.ENTITY_NOT_FOUND)
        return Document(None, None, version, failure)
    return Document(body, size, version, None if body is None else not_an_object(body))


def _unreadable(error: psycopg.Error) -> Failure:
    """The server's primary message names the cause; its context could quote the row, so it is left out."""
    return refused(
        f"the view cannot compute this entity's document: SQLSTATE {error.sqlstate}, {type(error).__name__}",
        Code.PAYLOAD_INVALID,
    )
