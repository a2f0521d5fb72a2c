"""A connection that listens for producers' notifications, on the direct address: LISTEN does not pass pgbouncer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from psycopg import Connection

from outbox.store.pool import connect, translated
from outbox.store.pooler import require_own_session

CHANNEL = "search_outbox"


_session = partial(connect, application="outbox-listen")


class PostgresEar:
    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def notified(self, seconds: float) -> bool:
        """One word is enough however many came; a silent connection is asked whether it still listens."""
        with translated():
            for _ in self._connection.notifies(timeout=seconds, stop_after=1):
                return True
            self._connection.execute("select 1")
        return False


@contextmanager
def ear(url: str) -> Iterator[PostgresEar]:
    with _session(url) as connection:
        with translated():
            require_own_session(connection, partial(_session, url))
            connection.execute(f"listen {CHANNEL}")
        yield PostgresEar(connection)
