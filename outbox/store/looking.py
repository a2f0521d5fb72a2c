"""Owns a short look for a person: a read-only transaction with a time limit, and plain words when that ran out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import Connection

from outbox.errors import DatabaseDown
from outbox.store.pool import Database

TIME_LIMIT_MS: Final = 3_000
# Estimates after a flood, or a filter that looks rare, tempt the planner into reading the whole table.
BY_INDEX: Final[Mapping[str, str]] = {"enable_seqscan": "off", "max_parallel_workers_per_gather": "0", "jit": "off"}


class LookTooLong(DatabaseDown):
    """This look would read too many rows and was given up. Narrow it: by state, entity type or id, or by a shorter
    time (`--since`)."""


def plan_with(connection: Connection[Any], plans: Mapping[str, str]) -> None:
    """Planner settings until the end of the transaction."""
    for name, value in plans.items():
        connection.execute("select set_config(%s, %s, true)", [name, value])


@contextmanager
def looking(
    database: Database, *, time_limit_ms: int = TIME_LIMIT_MS, plans: Mapping[str, str] | None = None
) -> Iterator[Connection[Any]]:
    """`plans`: planner settings that end with the look."""
    try:
        with database.transaction(read_only=True, timeout_ms=time_limit_ms) as connection:
            plan_with(connection, plans or {})
            yield connection
    except DatabaseDown as error:
        if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise LookTooLong(f"stopped after {time_limit_ms / 1000:g} s") from error
        raise
