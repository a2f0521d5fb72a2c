"""Walks the keys of the view, all of a type or those that a person's own SQL condition names. Writes nothing."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, LiteralString

import psycopg

from outbox.errors import DatabaseDown, SchemaMismatch, UsageError
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.view_shape import ViewShape, read_shape

LIMIT_MS: Final = 60_000
ESTIMATE_MS: Final = 5_000
EVERYTHING: Final = "true"


class BadCondition(UsageError):
    """--where is not one SQL condition over the columns of the view. It may name entity_id, document and other columns
    of the view, as in "(document->>'price')::numeric > 100"; nothing was changed."""


class ConditionTooSlow(UsageError):
    """The condition takes too long over the view. Let it use an index, as "entity_id in (select id from articles where
    ...)" can; nothing was changed."""


class ViewKeys:
    """Every call is a short read-only transaction of its own."""

    def __init__(self, database: Database, view: str) -> None:
        self._database = database
        self._view = view
        self._sql = queries("view_keys")

    def check(self, condition: str) -> None:
        """Raises BadCondition. What passes here and within the round brackets of a query is one expression."""
        self._rows(self._sql["check_condition"], condition, {"limit": 0})

    def keys(self, entity_type: str, after: str | None, limit: int, condition: str = EVERYTHING) -> list[str]:
        named = {"entity_type": entity_type, "after": after, "limit": limit}
        return [row[0] for row in self._rows(queries("truth")["view_keys"], condition, named)]

    def count(self, entity_type: str, condition: str = EVERYTHING, limit_ms: int = LIMIT_MS) -> int:
        return int(self._rows(self._sql["count"], condition, {"entity_type": entity_type}, limit_ms)[0][0])

    def estimate(self, types: Sequence[str]) -> int:
        """How many there are; 0 where that takes too long to be worth it."""
        try:
            return sum(self.count(each, limit_ms=ESTIMATE_MS) for each in types)
        except ConditionTooSlow:
            return 0

    def no_ids(self, ids: Sequence[str]) -> list[str]:
        """Those that no id of the view can be."""
        return [id for id in ids if not self._shape.id.names(id)]

    def _rows(
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
        except DatabaseDown as error:
            if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise ConditionTooSlow(f"over {limit_ms // 1000} s") from error
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
