"""Owns what the view of documents is like (columns, the type of its ids, which texts name one), and walks its keys.

Writes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import Connection, sql

from outbox.errors import DatabaseDown, DocumentsUnavailable, OutboxError, SchemaMismatch, UsageError
from outbox.store.pool import Database, QueryCancelled, TopicStore
from outbox.store.queries import queries

_INTEGER: Final = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
TEXTS: Final = frozenset({"text", "character varying", "bpchar", "citext"})
_SUPPORTED: Final = frozenset(_INTEGER) | TEXTS | {"uuid", "numeric", "date", "enum"}
_DIGITS: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMERIC: Final = re.compile(r"-?(0|[1-9]\d{0,131071})(\.\d{1,16383})?|NaN|-?Infinity", re.ASCII)
_DATE: Final = re.compile(r"(\d{4}|[1-9]\d{4,6})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIRST_DATE, _LAST_YEAR = (-4713, 11, 24), 5_874_897  # PostgreSQL's own bounds; the year 0 is 1 BC

# A date's text depends on DateStyle, which every transaction that reads the view pins (`pool`).
_TEXT: Final = sql.SQL('(d.entity_id::text collate "C")')


class IdType(NamedTuple):
    """The type of the view's ids. `cast` is its base type without a length: a cast to char(n) cuts, a cast to a domain
    checks, and both would take one id for another or stop a whole batch."""

    declared: str
    cast: LiteralString
    base: str
    operators: LiteralString = "pg_catalog"  # the schema of `=` and `>`; that of citext need not be in the search path
    ties: bool = False  # ids that are equal by their type may have two texts
    labels: frozenset[str] = frozenset()

    @property
    def supported(self) -> bool:
        return self.base in _SUPPORTED

    def names(self, text: str) -> bool:
        """Whether an id may be written so. What may not is nobody's id: no row of the view can have it."""
        return text in self.labels if self.base == "enum" else names_an_id(text, self.base)

    def fragments(self) -> Mapping[str, sql.Composable]:
        """How queries speak of an id. `id_text` is what the document is named by: an event means only the row whose own
        text it has; the typed comparison beside it is for the index."""
        cast = sql.SQL(self.cast)
        # PostgreSQL takes a domain for its base type by itself, except where that is an enum.
        id = sql.SQL("d.entity_id::") + cast if self.base == "enum" else sql.SQL("d.entity_id")
        return {"id": id, "id_type": cast, "id_ops": sql.SQL(self.operators), "id_text": _TEXT}

    def order(self) -> sql.Composable:
        """The key order, in which equal ids with two texts, 1.0 and 1 or ABC and abc, stand one after the other."""
        return sql.SQL("d.entity_id, {id_text}" if self.ties else "d.entity_id").format(**self.fragments())

    def beyond(self) -> sql.Composable:
        """What comes after a key. Among ties the first comparison is for the index."""
        later = "{id} operator({id_ops}.>) %(after)s::text::{id_type}"
        tied = (
            "{id} operator({id_ops}.>=) %(after)s::text::{id_type} and (" + later + " or {id_text} > %(after)s::text)"
        )
        return sql.SQL(tied if self.ties else later).format(**self.fragments())

    def until(self) -> sql.Composable:
        """What comes up to a key, itself included: exactly what `beyond` leaves out."""
        upto = "{id} operator({id_ops}.<=) %(until)s::text::{id_type}"
        tied = upto + " and ({id} operator({id_ops}.<) %(until)s::text::{id_type} or {id_text} <= %(until)s::text)"
        return sql.SQL(tied if self.ties else upto).format(**self.fragments())


def names_an_id(text: str, type_name: str) -> bool:
    """Whether an id of this type is written so. `007` and a uuid in capitals are no ids: they name other documents."""
    if type_name == "uuid":
        return _UUID.fullmatch(text) is not None
    if limit := _INTEGER.get(type_name):
        return _DIGITS.fullmatch(text) is not None and -limit <= int(text) < limit
    if type_name == "numeric":
        return _NUMERIC.fullmatch(text) is not None
    if type_name == "date":
        return _is_date(text)
    return "\x00" not in text


def _is_date(text: str) -> bool:
    if text in ("infinity", "-infinity"):
        return True
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = (int(part) for part in found.group(1, 2, 3))
    if not year or year > _LAST_YEAR or not 1 <= month <= 12:
        return False
    year = 1 - year if found[4] else year
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= _DAYS[month - 1] + leap and (year, month, day) >= _FIRST_DATE


NEEDED_COLUMNS: Final = frozenset({"entity_type", "entity_id", "document"})
MATERIALISED: Final = (
    "is a materialised view, which no change reaches until someone refreshes it. Make it an ordinary view, or a table "
    "that a job of yours fills, and attach that table."
)
_NO_VIEW: Final = IdType("text", "text", "text")


class UnsupportedIds(OutboxError):
    """The ids of the view have a type whose text is not one-to-one or depends on the session. Give them as text in the
    view (`id::text`; for a time `to_char`, for bytes `encode`), with an index on the same expression; docs/documents.md
    lists the types that need no cast."""

    exit_code = 78


class ViewShape(NamedTuple):
    """The columns with their types as declared; none where there is no view."""

    view: str
    columns: Mapping[str, str]
    id: IdType
    materialised: bool = False

    def check(self) -> None:
        """Raises DocumentsUnavailable (not there, not whole, materialised), or UnsupportedIds."""
        if missing := NEEDED_COLUMNS - self.columns.keys():
            raise DocumentsUnavailable(f"{self.view} does not exist or lacks {', '.join(sorted(missing))}")
        self._check_fresh()
        self.check_ids()

    def _check_fresh(self) -> None:
        if self.materialised:
            raise DocumentsUnavailable(f"{self.view} {MATERIALISED}")

    def check_ids(self) -> None:
        if not self.id.supported:
            raise UnsupportedIds(f"{self.view}.entity_id is {self.id.declared}; give it as text, with an index on that")

    def query(
        self,
        text: LiteralString,
        *,
        after: str | None = None,
        until: str | None = None,
        condition: LiteralString = "true",
    ) -> sql.Composed:
        """A query in terms of this view. A page begins behind `after` and ends with `until`; `condition` chooses among
        its rows. Raises DocumentsUnavailable where it is materialised: also `verify` and `rebuild` ask by this."""
        self._check_fresh()
        ends = [sql.SQL("d.entity_id is not null") if after is None else self.id.beyond()]
        ends += [] if until is None else [self.id.until()]
        filled_in: dict[str, sql.Composable] = {
            "view": sql.Identifier(*self.view.split(".")),
            "condition": sql.SQL(condition),
            "beyond": sql.SQL(" and ").join(ends),
            "order": self.id.order(),
            **self.id.fragments(),
            "routing": sql.SQL("d.routing::text" if "routing" in self.columns else "null::text"),
        }
        return sql.SQL(text).format(**filled_in)


def read_shape(connection: Connection[Any], view: str) -> ViewShape:
    name = sql.Identifier(*view.split(".")).as_string(connection)
    rows = connection.execute(queries("documents")["shape"], {"view": name}).fetchall()
    ids = [IdType._make((*row[1:-2], frozenset(row[-2]))) for row in rows if row[0] == "entity_id"]
    return ViewShape(view, {row[0]: row[1] for row in rows}, ids[0] if ids else _NO_VIEW, any(row[-1] for row in rows))


LIMIT_MS: Final = 60_000
ESTIMATE_MS: Final = 5_000
EVERYTHING: Final = "true"


class BadCondition(UsageError):
    """--where is not one SQL condition over the columns of the view. It may name entity_id, document and other columns
    of the view, as in "(document->>'price')::numeric > 100"; nothing was changed."""


class ConditionTooSlow(UsageError):
    """The condition takes too long over the view. Let it use an index, as "entity_id in (select id from articles where
    ...)" can; nothing was changed."""


class ViewKeys(TopicStore, topic="view_keys"):
    """Every call is a short read-only transaction of its own."""

    def __init__(self, database: Database, view: str) -> None:
        super().__init__(database)
        self._view = view

    def check(self, condition: str) -> None:
        """Raises BadCondition. What passes here and within the round brackets of a query is one expression."""
        self._asked(self._sql["check_condition"], condition, {"limit": 0})

    def keys(self, entity_type: str, after: str | None, limit: int, condition: str = EVERYTHING) -> list[str]:
        named = {"entity_type": entity_type, "after": after, "limit": limit}
        return [row[0] for row in self._asked(queries("truth")["view_keys"], condition, named)]

    def count(self, entity_type: str, condition: str = EVERYTHING, limit_ms: int = LIMIT_MS) -> int:
        return int(self._asked(self._sql["count"], condition, {"entity_type": entity_type}, limit_ms)[0][0])

    def estimate(self, types: Sequence[str]) -> int:
        """How many there are; 0 where that takes too long to be worth it."""
        try:
            return sum(self.count(each, limit_ms=ESTIMATE_MS) for each in types)
        except ConditionTooSlow:
            return 0

    def no_ids(self, ids: Sequence[str]) -> list[str]:
        return [id for id in ids if not self._shape.id.names(id)]

    def _asked(
        self, query: LiteralString, condition: str, named: Mapping[str, Any], limit_ms: int = LIMIT_MS
    ) -> list[tuple[Any, ...]]:
        # The operator's own SQL, on purpose: read-only, with a time limit, with nobody's rights but the operator's.
        # With parameters psycopg uses the extended protocol, which takes one statement only.
        text: LiteralString = condition.replace("%", "%%")
        made = self._shape.query(query, after=named.get("after"), condition=text)
        try:
            with self._database.transaction(read_only=True, timeout_ms=limit_ms) as connection:
                return connection.execute(made, named).fetchall()
        except SchemaMismatch as error:
            raise BadCondition(error.detail) from error
        except QueryCancelled as error:
            raise ConditionTooSlow(f"over {limit_ms // 1000} s") from error
        except DatabaseDown as error:
            if isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction):
                raise BadCondition(error.detail) from error
            raise
        except psycopg.Error as error:
            raise BadCondition(error.diag.message_primary or type(error).__name__) from error

    @cached_property
    def _shape(self) -> ViewShape:
        with self._database.connection() as connection:
            shape = read_shape(connection, self._view)
        shape.check()
        return shape
