"""Finds keys at which the entities of a type can be cut into parts of about the same size. Reads keys, no document.

The planner's statistics have them where the view's ids are a table's own column; otherwise one pass over the keys takes
a random sample. Both give keys in the order of the ids' own type, which every page follows too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
import psycopg
from psycopg import sql

from outbox.errors import DatabaseDown, DocumentsUnavailable
from outbox.store.documents import ViewDocuments
from outbox.store.entity_events import EntityEvents, rows
from outbox.store.plans import nodes
from outbox.store.pool import Database, TopicStore

MOST_KEYS: Final = 10_000  # the largest histogram that PostgreSQL keeps
SAMPLED: Final = 50  # keys per part: its size then varies by a seventh (the root of 50), unless statistics are wrong
SAMPLE_MS: Final = 120_000  # 30 million keys of an index, at 250,000 per second on two busy cores
FEW_KEYS: Final = 10  # a histogram of less than this says too little about where to cut
ONE_SAMPLE_ROWS: Final = 5_000  # read whole: no sample is needed
_COLUMN: Final = re.compile(r'(?P<alias>"(?:[^"]|"")+"|[^\W\d]\w*)\.(?P<column>"(?:[^"]|"")+"|[^\W\d]\w*)')


class ScannedColumn(NamedTuple):
    """Where the ids of a type come from. No table: an expression, or the view is more than one scan."""

    rows: int
    schema: str = ""
    table: str = ""
    column: str = ""


class KeyBounds(TopicStore, topic="rebuild_parts"):
    def __init__(self, database: Database, view: str) -> None:
        super().__init__(database)
        self._view = ViewDocuments(database, view, batch_bytes=1)
        self._events = EntityEvents(database)

    def estimate(self, entity_type: str, *, in_view: bool) -> int:
        """How many entities of a type there are, as the planner sees it."""
        return self._scanned(entity_type).rows if in_view else 0

    def keys(self, entity_type: str, parts: int, *, in_view: bool) -> Sequence[str]:
        """In their order, about equally far apart: those that statistics know, else a sample; none where nothing is
        known: then there is one part."""
        if not in_view:
            query = sql.SQL(self._sql["event_histogram"]).format(entity_id_type=sql.SQL(self._events.id_type))
            return self._keys(query, {"most": MOST_KEYS})
        scanned, found = self._scanned(entity_type), list[str]()
        if scanned.table and scanned.rows > ONE_SAMPLE_ROWS:
            named = {"schema": scanned.schema, "table": scanned.table, "column": scanned.column, "most": MOST_KEYS}
            found = self._keys(self._view.shape().query(self._sql["histogram"]), named)
        return found if len(found) >= min(parts, FEW_KEYS) else self._sample(entity_type, parts, scanned.rows)

    def _sample(self, entity_type: str, parts: int, estimate: int) -> Sequence[str]:
        """One that takes too long is left: then there is one part, which is slower and as right."""
        share = 1.0 if estimate <= ONE_SAMPLE_ROWS else min(1.0, SAMPLED * parts / estimate)
        named = {"entity_type": entity_type, "share": share, "most": min(MOST_KEYS, SAMPLED * parts)}
        try:
            return self._keys(self._view.shape().query(self._sql["sample"]), named)
        except DocumentsUnavailable:
            return ()

    def _keys(self, query: sql.Composed, named: Mapping[str, object]) -> list[str]:
        try:
            return [row[0] for row in rows(self._database, query, named, SAMPLE_MS)]
        except psycopg.DataError as error:
            raise DocumentsUnavailable(f"the keys cannot be listed: SQLSTATE {error.sqlstate}") from error

    def _scanned(self, entity_type: str) -> ScannedColumn:
        query = sql.SQL("explain (verbose, format json) ") + self._view.shape().query(self._sql["scan_column"])
        try:
            found = rows(self._database, query, {"entity_type": entity_type})
        except (psycopg.Error, DatabaseDown):
            return ScannedColumn(0)
        return scanned_column(orjson.loads(found[0][0])[0]["Plan"])


def scanned_column(plan: Mapping[str, Any]) -> ScannedColumn:
    """Which column a plan gives. Only one of a table that is scanned under that very name counts."""
    found = ScannedColumn(int(plan.get("Plan Rows", 0)))
    output = plan.get("Output") or [""]
    named = _COLUMN.fullmatch(output[0])
    if named is None:
        return found
    for node in nodes(plan):
        if node.get("Alias") == _bare(named["alias"]) and "Relation Name" in node:
            return ScannedColumn(found.rows, node["Schema"], node["Relation Name"], _bare(named["column"]))
    return found


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
