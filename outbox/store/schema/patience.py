"""Owns taking strong table locks without making producers wait long; it holds no SQL of its own.

A statement that waits for a lock makes everyone behind it wait too. So each try gives up after the lock
timeout, lets the queue pass, and tries again.
"""

from collections.abc import Callable

import psycopg
from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random_exponential,
)

from outbox.errors import OutboxError

LOCK_TIMEOUT_MS = 1500
"""The longest that one try may hold up a producer. Above PostgreSQL's deadlock_timeout (1 s): only who waits
longer than that makes an autovacuum of the table step aside."""

TRY_FOR_SECONDS = 300.0

_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


class TableBusy(OutboxError):
    """A table stayed locked by other sessions. Nothing is lost: find long transactions in pg_stat_activity,
    let them end, and run the command again; it continues where it stopped."""

    exit_code = 75


def until_true(step: Callable[[], bool], otherwise: str) -> None:
    """Repeat `step` until it says True; `otherwise` says what was in the way."""
    tries = Retrying(
        retry=retry_if_result(lambda finished: not finished),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        stop=stop_after_delay(TRY_FOR_SECONDS),
    )
    try:
        tries(step)
    except RetryError as late:
        raise TableBusy(otherwise) from late


def in_transaction(
    conn: psycopg.Connection,
    *works: Callable[[], object],
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    try_for_seconds: float = TRY_FOR_SECONDS,
) -> None:
    """Run `works` in one transaction under the lock timeout, and again until they get their locks. They must be safe to
    repeat after a lock timeout or a deadlock."""
    tries = Retrying(
        retry=retry_if_exception_type(_BUSY),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        stop=stop_after_delay(try_for_seconds),
        reraise=True,
    )

    def step() -> None:
        with conn.transaction():
            conn.execute("select set_config('lock_timeout', %s, true)", (f"{lock_timeout_ms}ms",))
            for work in works:
                work()

    try:
        tries(step)
    except _BUSY as busy:
        raise TableBusy(str(busy).splitlines()[0]) from busy
