"""Owns taking over a `search_outbox_events` that was there before us, under producers; it rewrites nothing.

What stands in the way is found first. Every step reads what is there and may be repeated, so a kill at any point is
fixed by running it again.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import psycopg
from psycopg import sql

from outbox.errors import OutboxError
from outbox.store.schema import files
from outbox.store.schema.patience import in_transaction, until_true

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

NEEDED = ("id", "entity_type", "entity_id", "op", "event_version", "status", "created_at")
"""Columns that cannot be invented for rows that are there; all others are added."""

NOT_NULL = (*NEEDED, "attempts", "replay_count", "updated_at")

STATUSES = ["pending", "processing", "done", "failed", "discarded"]


class FoundColumn(NamedTuple):
    name: str
    type: str
    not_null: bool
    has_default: bool


def problems_of(conn: psycopg.Connection) -> list[str]:
    """Everything that stands in the way, with its remedy. Reads the rows only if the columns are right."""
    if elsewhere := _elsewhere(conn):
        return [elsewhere]
    columns = {column.name: column for column in found_columns(conn)}
    problems = [*_column_problems(columns), *_key_problems(conn)]
    return problems or _row_problems(conn, columns)


def found_columns(conn: psycopg.Connection) -> list[FoundColumn]:
    rows = conn.execute(
        "select attname, format_type(atttypid, null), attnotnull, atthasdef or attidentity <> ''"
        " from pg_attribute where attrelid = 'search_outbox_events'::regclass and attnum > 0"
        " and not attisdropped order by attnum"
    ).fetchall()
    return [FoundColumn(*row) for row in rows]


def _elsewhere(conn: psycopg.Connection) -> str:
    row = conn.execute(
        "select n.nspname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace"
        " where c.oid = 'search_outbox_events'::regclass and n.nspname <> current_schema()"
    ).fetchone()
    if row is None:
        return ""
    return f"the table is in schema {row[0]}, but new ones would go elsewhere. Put it first in search_path."


def _column_problems(columns: dict[str, FoundColumn]) -> list[str]:
    problems = [
        f"column {name} is missing and cannot be made up. Add and fill it." for name in NEEDED if name not in columns
    ]
    for column in columns.values():
        allowed = TYPES.get(column.name)
        if allowed is not None and column.type not in allowed:
            problems.append(f"column {column.name} is {column.type}. Change it to {' or '.join(allowed)}.")
        elif allowed is None and column.not_null and not column.has_default:
            problems.append(f"column {column.name} is not null without default, and not ours. Give it a default.")
    return problems


def _key_problems(conn: psycopg.Connection) -> list[str]:
    unique = conn.execute(
        "select exists (select from pg_index as x join pg_attribute as a on a.attrelid = x.indrelid"
        " and a.attnum = x.indkey[0] where x.indrelid = 'search_outbox_events'::regclass and x.indisunique"
        " and x.indisvalid and x.indnkeyatts = 1 and x.indpred is null and a.attname = 'id')"
    ).fetchone()
    return [] if unique == (True,) else ["column id is not unique. Make it the primary key."]


def _row_problems(conn: psycopg.Connection, columns: dict[str, FoundColumn]) -> list[str]:
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
    return problems


def _holds_null(conn: psycopg.Connection, column: str) -> bool:
    query = sql.SQL("select exists (select from search_outbox_events where {} is null)")
    return conn.execute(query.format(sql.Identifier(column))).fetchone() == (True,)


FILL_STEP = 1000
"""Rows per step: about 50 ms with the guide's ten indexes, so an update of the same row never waits long."""

Say = Callable[[str], None]


class CannotAdopt(OutboxError):
    """The existing table search_outbox_events cannot be taken over as it is. Nothing was changed. Correct what
    is listed and run `outbox migrate` again."""

    exit_code = 78

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("".join(f"\n  - {problem}" for problem in problems))


def is_needed(conn: psycopg.Connection) -> bool:
    return conn.execute("select to_regclass('search_outbox_events') is not null").fetchone() == (True,)


def refuse_unfit(conn: psycopg.Connection) -> None:
    if problems := problems_of(conn):
        raise CannotAdopt(problems)


def adopt_columns(conn: psycopg.Connection, say: Say) -> None:
    """Give the table the columns, defaults, check and settings of ours; its rows are left for `fill_rows`."""
    refuse_unfit(conn)
    say("adopting search_outbox_events: columns")
    _run(conn, "1_columns")
    say("adopting search_outbox_events: sequences above what is there")
    conn.execute(files.text("adoption", "2_sequences").encode())
    say("adopting search_outbox_events: defaults")
    _run(conn, "3_defaults")
    say("adopting search_outbox_events: checking every row")
    conn.execute(files.text("adoption", "4_validate").encode())
    for column in found_columns(conn):
        if column.name in NOT_NULL and not column.not_null:
            _forbid_null(conn, column.name)


def fill_rows(conn: psycopg.Connection, say: Say) -> None:
    """Number the open and failed rows and set missing times, in small steps of one transaction each."""
    if conn.execute("select to_regclass('search_outbox_adoption') is null").fetchone() == (True,):
        say("adopting search_outbox_events: listing open and failed rows")
        with conn.transaction():
            conn.execute(files.text("adoption", "5_list_rows").encode())
    until_true(lambda: _fill_pass(conn, say), "rows of search_outbox_events stay locked")


def _fill_pass(conn: psycopg.Connection, say: Say) -> bool:
    """One walk over the list; True when nothing is left on it. Rows that someone held are left for the next."""
    first, last = _ends(conn)
    query = files.text("adoption", "6_fill_rows").encode()
    for start in range(first - 1, last, FILL_STEP):
        in_transaction(conn, partial(conn.execute, query, {"after": start, "upto": start + FILL_STEP}))
        if (start // FILL_STEP) % 100 == 99:
            say(f"adopting search_outbox_events: {start + FILL_STEP} of {last} rows filled")
    return _ends(conn) == (1, 0)


def _ends(conn: psycopg.Connection) -> tuple[int, int]:
    row = conn.execute("select min(ordinal), max(ordinal) from search_outbox_adoption").fetchone()
    first, last = row or (None, None)
    return first or 1, last or 0


def _run(conn: psycopg.Connection, step: str) -> None:
    in_transaction(conn, lambda: conn.execute(files.text("adoption", step).encode()))


def _forbid_null(conn: psycopg.Connection, column: str) -> None:
    """SET NOT NULL by way of a validated check: alone it would scan the table with producers locked out."""
    name = sql.Identifier(f"search_outbox_events_{column}_given")
    table = sql.SQL("alter table search_outbox_events ")
    drop = table + sql.SQL("drop constraint if exists {}").format(name)
    add = table + sql.SQL("add constraint {} check ({} is not null) not valid").format(name, sql.Identifier(column))
    in_transaction(conn, lambda: conn.execute(drop), lambda: conn.execute(add))
    conn.execute(table + sql.SQL("validate constraint {}").format(name))
    forbid = table + sql.SQL("alter column {} set not null").format(sql.Identifier(column))
    in_transaction(conn, lambda: conn.execute(forbid), lambda: conn.execute(drop))
