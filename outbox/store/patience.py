"""Owns taking strong table locks without making producers wait long: short tries, pauses between; no SQL of its own.

A statement that waits for a lock makes everyone behind it wait too. So each try gives up after `lock_timeout`, lets
the queue pass, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from outbox.errors import OutboxError

LOCK_TIMEOUT_MS = 500
"""The longest that one try may hold up a producer."""

TRY_FOR_SECONDS = 300

Result = TypeVar("Result")


class TableBusy(OutboxError):
    """A table stayed locked by other sessions. Nothing is lost: look for long transactions in pg_stat_activity, let
    them end, and run the command again; it goes on where it stopped."""

    exit_code = 75


def with_patience(step: Callable[[], Result], *, try_for_seconds: float = TRY_FOR_SECONDS) -> Result:
    """Run `step` until it gets its locks. It must be safe to repeat after a lock timeout or a deadlock."""
    tries = Retrying(
        retry=retry_if_exception_type((psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        stop=stop_after_delay(try_for_seconds),
        reraise=True,
    )
    try:
        return tries(step)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as busy:
        raise TableBusy(str(busy).splitlines()[0]) from busy


def run_in_transaction(conn: psycopg.Connection, statements: str, after: Callable[[], None]) -> None:
    """Run a whole file and `after` in one transaction, under the lock timeout, with patience."""

    def step() -> None:
        with conn.transaction():
            conn.execute(f"set local lock_timeout = {LOCK_TIMEOUT_MS}")  # type: ignore[call-overload]
            if statements.strip():
                conn.execute(statements)  # type: ignore[call-overload]
            after()

    with_patience(step)
