"""Owns taking over a `search_outbox_events` that was there before us, under producers; it rewrites nothing.

Every step looks at what is there and may be repeated, so a kill at any point is mended by running it again.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import sql

from outbox.errors import OutboxError
from outbox.store import adoption_problems, migration_files
from outbox.store.patience import in_transaction, until_true

FILL_STEP = 1000
"""Rows a step: about 50 ms with the guide's ten indexes, so an update of the same row never waits long."""

Say = Callable[[str], None]


class CannotAdopt(OutboxError):
    """The existing table search_outbox_events cannot be taken over as it is. Nothing was changed. Correct what
    is listed and run `outbox migrate` again."""

    exit_code = 78

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("".join(f"\n  - {problem}" for problem in problems))


def is_needed(conn: psycopg.Connection) -> bool:
    """True where the table is there already."""
    return conn.execute("select to_regclass('search_outbox_events') is not null").fetchone() == (True,)


def refuse_unfit(conn: psycopg.Connection) -> None:
    """Raise with everything that stands in the way, if anything does."""
    if problems := adoption_problems.find(conn):
        raise CannotAdopt(problems)


def adopt_columns(conn: psycopg.Connection, say: Say) -> None:
    """Give the table the columns, defaults, check and settings of ours; its rows are left for `fill_rows`."""
    refuse_unfit(conn)
    say("adopting search_outbox_events: columns")
    _run(conn, "1_columns")
    say("adopting search_outbox_events: sequences above what is there")
    conn.execute(migration_files.adoption("2_sequences").encode())
    say("adopting search_outbox_events: defaults")
    _run(conn, "3_defaults")
    say("adopting search_outbox_events: checking every row")
    conn.execute(migration_files.adoption("4_validate").encode())
    for column in adoption_problems.read_columns(conn):
        if column.name in adoption_problems.NOT_NULL and not column.not_null:
            _forbid_null(conn, column.name)


def fill_rows(conn: psycopg.Connection, say: Say) -> None:
    """Number the open and failed rows and set missing times, in small steps of one transaction each."""
    if conn.execute("select to_regclass('search_outbox_adoption') is null").fetchone() == (True,):
        say("adopting search_outbox_events: listing open and failed rows")
        with conn.transaction():
            conn.execute(migration_files.adoption("5_list_rows").encode())
    until_true(lambda: _fill_pass(conn, say), "rows of search_outbox_events stay locked")


def _fill_pass(conn: psycopg.Connection, say: Say) -> bool:
    """One walk over the list; True when nothing is left on it. Rows that someone held are left for the next."""
    first, last = _ends(conn)
    for start in range(first - 1, last, FILL_STEP):
        _fill_step(conn, start)
        if (start // FILL_STEP) % 100 == 99:
            say(f"adopting search_outbox_events: {start + FILL_STEP} of {last} rows filled")
    return _ends(conn) == (1, 0)


def forget_list(conn: psycopg.Connection) -> None:
    """Drop the list; to be called in the transaction that records the migration."""
    conn.execute("drop table if exists search_outbox_adoption")


def _ends(conn: psycopg.Connection) -> tuple[int, int]:
    row = conn.execute("select min(ordinal), max(ordinal) from search_outbox_adoption").fetchone()
    first, last = row or (None, None)
    return first or 1, last or 0


def _fill_step(conn: psycopg.Connection, after: int) -> None:
    query = migration_files.adoption("6_fill_rows").encode()
    bounds = {"after": after, "upto": after + FILL_STEP}
    in_transaction(conn, lambda: conn.execute(query, bounds))


def _run(conn: psycopg.Connection, step: str) -> None:
    in_transaction(conn, lambda: conn.execute(migration_files.adoption(step).encode()))


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
