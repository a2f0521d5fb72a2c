"""Owns reading PostgreSQL's own plans: which tables a query would read as a whole. Runs none of the queries."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg import Connection, sql

Plan = Mapping[str, Any]


def explained(connection: Connection[Any], query: sql.Composable, named: Mapping[str, Any] | None = None) -> Plan:
    # Bound here, not by the server: EXPLAIN of a prepared statement would show a generic plan.
    with psycopg.ClientCursor(connection) as cursor:
        row = cursor.execute(sql.SQL("explain (format json) {}").format(query), named).fetchone()
    assert row is not None
    plan = json.loads(row[0]) if isinstance(row[0], (str, bytes)) else row[0]
    return dict(plan[0]["Plan"])


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def whole_reads(
    connection: Connection[Any], query: sql.Composable, named: Mapping[str, Any] | None = None
) -> list[Plan]:
    """Tables with their number of rows, in a transaction. A small table is read as a whole although it has an index:
    only what no index can serve counts."""
    connection.execute("select set_config('enable_seqscan', 'off', true)")
    read = (node for node in nodes(explained(connection, query, named)) if node["Node Type"] == "Seq Scan")
    return [{"table": node["Relation Name"], "rows": _rows(connection, node["Relation Name"])} for node in read]


def _rows(connection: Connection[Any], table: str) -> int:
    row = connection.execute(
        "select max(reltuples)::bigint from pg_class where relname = %s and relkind in ('r', 'p', 'm')", (table,)
    ).fetchone()
    return max(row[0] or 0, 0) if row else 0
