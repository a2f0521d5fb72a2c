"""Owns judging whether an existing `search_outbox_events` can be adopted; it only reads."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
from psycopg import sql

TEXTS = ("text", "character varying")
TIMES = ("timestamp with time zone",)
WHOLE = ("integer", "bigint")
JSONS = ("json", "jsonb")
IDS = ("uuid", "text", "character varying", "bigint", "integer")

TYPES: dict[str, tuple[str, ...]] = {
    "id": ("uuid",),
    "seq": ("bigint",),
    "entity_type": TEXTS,
    "entity_id": IDS,
    "op": TEXTS,
    "event_version": ("bigint",),
    "payload": JSONS,
    "status": TEXTS,
    "lease_token": ("uuid",),
    "error_detail": JSONS,
    **dict.fromkeys(("attempts", "replay_count", "abandoned_count", "max_attempts"), WHOLE),
    **dict.fromkeys(("routing", "idempotency_key", "owner", "error_reason", "error_code", "error"), TEXTS),
    **dict.fromkeys(("error_fingerprint", "dead_reason", "last_replayed_by", "last_replayed_reason"), TEXTS),
    **dict.fromkeys(("traceparent", "tracestate"), TEXTS),
    **dict.fromkeys(("lease_until", "processing_started_at", "last_attempt_at", "next_retry_at"), TIMES),
    **dict.fromkeys(("processed_at", "failed_at", "last_replayed_at", "created_at", "updated_at"), TIMES),
}
"""What each column may be: what the store can read and write without another cast."""

SHORTEST: dict[str, int] = {
    "status": 10,
    "op": 6,
    "owner": 64,
    "error_reason": 32,
    "error": 2048,
    "dead_reason": 32,
}
"""The least room that a varchar must leave for what the product writes."""

NEEDED = ("id", "entity_type", "entity_id", "op", "event_version", "status", "created_at")
"""Columns that cannot be invented for rows that are there; all others are added."""

NOT_NULL = (*NEEDED, "attempts", "replay_count", "updated_at")

STATUSES = ["pending", "processing", "done", "failed", "discarded"]
HIGHEST_VERSION = 9_000_000_000_000_000_000


class Column(NamedTuple):
    name: str
    type: str
    length: int | None
    not_null: bool
    has_default: bool
    generated: bool


def find(conn: psycopg.Connection) -> list[str]:
    """Everything that stands in the way, with its remedy. Reads the rows only if the columns are right."""
    table = _table_problems(conn)
    if table:
        return table
    columns = {column.name: column for column in read_columns(conn)}
    problems = [*_column_problems(columns), *_constraint_problems(conn)]
    return problems or _row_problems(conn, columns)


def read_columns(conn: psycopg.Connection) -> list[Column]:
    """The columns of the table as they are."""
    rows = conn.execute(
        "select attname, format_type(atttypid, null),"
        " case when atttypid = 'varchar'::regtype and atttypmod > 0 then atttypmod - 4 end,"
        " attnotnull, atthasdef or attidentity <> '', attgenerated <> '' or attidentity = 'a'"
        " from pg_attribute where attrelid = 'search_outbox_events'::regclass and attnum > 0"
        " and not attisdropped order by attnum"
    ).fetchall()
    return [Column(*row) for row in rows]


def _table_problems(conn: psycopg.Connection) -> list[str]:
    row = conn.execute(
        "select relkind = 'r', relpersistence = 'p', n.nspname = current_schema(), n.nspname"
        " from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
        " where c.oid = 'search_outbox_events'::regclass"
    ).fetchone()
    plain, permanent, here, schema = row or (False, False, False, "")
    problems = []
    if not plain:
        problems.append("search_outbox_events is not an ordinary table. Rename it; a new one will be made.")
    if not permanent:
        problems.append("the table is unlogged or temporary and would lose rows. Run ALTER TABLE ... SET LOGGED.")
    if not here:
        problems.append(
            f"the table is in schema {schema}, but new ones would go elsewhere. Put it first in search_path."
        )
    return problems


def _column_problems(columns: dict[str, Column]) -> list[str]:
    problems = [
        f"column {name} is missing and cannot be made up. Add and fill it." for name in NEEDED if name not in columns
    ]
    for column in columns.values():
        problems += _type_problems(column) if column.name in TYPES else _foreign_problems(column)
    return problems


def _type_problems(column: Column) -> list[str]:
    allowed = TYPES[column.name]
    if column.type not in allowed:
        return [f"column {column.name} is {column.type}. Change it to {' or '.join(allowed)}."]
    if column.generated:
        return [f"column {column.name} is generated, so nothing can be written there. Make it an ordinary column."]
    least = SHORTEST.get(column.name, 0)
    if column.length is not None and column.length < least:
        return [f"column {column.name} holds {column.length} characters. Widen it to at least {least}."]
    return []


def _foreign_problems(column: Column) -> list[str]:
    if column.not_null and not column.has_default and not column.generated:
        return [f"column {column.name} is not null without default, and not ours. Give it a default."]
    return []


def _constraint_problems(conn: psycopg.Connection) -> list[str]:
    problems = []
    unique = conn.execute(
        "select exists (select from pg_index as x join pg_attribute as a on a.attrelid = x.indrelid"
        " and a.attnum = x.indkey[0] where x.indrelid = 'search_outbox_events'::regclass and x.indisunique"
        " and x.indisvalid and x.indnkeyatts = 1 and x.indpred is null and a.attname = 'id')"
    ).fetchone()
    if unique != (True,):
        problems.append("column id is not unique. Make it the primary key.")
    checks = conn.execute(
        "select conname, pg_get_constraintdef(oid) from pg_constraint"
        " where conrelid = 'search_outbox_events'::regclass and contype = 'c' order by conname"
    ).fetchall()
    for name, definition in checks:
        if "status" in definition and "discarded" not in definition:
            problems.append(f"constraint {name} does not allow the status 'discarded'. Drop it; ours takes its place.")
    return problems


def _row_problems(conn: psycopg.Connection, columns: dict[str, Column]) -> list[str]:
    problems = []
    unknown = conn.execute(
        "select status::text, count(*) from search_outbox_events where not status = any (%s) group by 1 order by 1",
        (STATUSES,),
    ).fetchall()
    for status, count in unknown:
        problems.append(f"{count} rows have the status '{status}'. Change it to one of {', '.join(STATUSES)}.")
    for name in NOT_NULL:
        if name in columns and not columns[name].not_null and _holds_null(conn, name):
            problems.append(f"column {name} is null in some rows. Fill it.")
    if "idempotency_key" in columns and _repeats_key(conn):
        problems.append("an idempotency_key stands in more than one row. Keep it in one of them.")
    highest = conn.execute("select max(event_version) from search_outbox_events").fetchone()
    if highest and highest[0] is not None and highest[0] > HIGHEST_VERSION:
        problems.append(f"the highest event_version is {highest[0]}, which leaves no room above it. Lower it.")
    return problems


def _repeats_key(conn: psycopg.Connection) -> bool:
    return conn.execute(
        "select exists (select from search_outbox_events where idempotency_key is not null"
        " group by idempotency_key having count(*) > 1)"
    ).fetchone() == (True,)


def _holds_null(conn: psycopg.Connection, column: str) -> bool:
    query = sql.SQL("select exists (select from search_outbox_events where {} is null)")
    return conn.execute(query.format(sql.Identifier(column))).fetchone() == (True,)
