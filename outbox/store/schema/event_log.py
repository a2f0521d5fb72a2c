"""Owns turning the event log (`search_outbox_log`) off; `sql/optional/log.sql` installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from outbox.errors import NotPermitted
from outbox.store.schema.files import Migration
from outbox.store.schema.patience import in_transaction

LOG = "log"
TABLE = "search_outbox_log"
# There while producers write to the log: `outbox_enqueue` as it was, kept for the way back. Any role can see it.
KEPT = "search_outbox_enqueue_table"


class LogNotPermitted(NotPermitted):
    """This role may not install the event log. Nothing was changed. As the database's owner, run `grant create on
    database NAME to ROLE`, then run this command again."""


@contextmanager
def permitted(migration: Migration) -> Iterator[None]:
    """A publication needs a right that no other part needs; PostgreSQL's own words name the database."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        if migration.name != LOG:
            raise
        raise LogNotPermitted(error.diag.message_primary or "permission denied") from error


def is_on(conn: psycopg.Connection) -> bool:
    return conn.execute("select to_regproc(%s) is not null", (KEPT,)).fetchone() == (True,)


def turn_off(conn: psycopg.Connection, say: Callable[[str], None]) -> list[str]:
    """Every producer of ours writes to search_outbox_events from the commit on. Returns what was done."""
    if not is_on(conn):
        return []
    others: list[str] = []

    def switch() -> None:
        others[:] = [name for (name,) in conn.execute("select search_outbox_log_off()").fetchall()]

    in_transaction(conn, switch)
    for name in others:
        say(f"{name} belongs to another role and still writes to {TABLE}: attach its table again")
    return ["log off"]
