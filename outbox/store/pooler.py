"""Owns sessions that must be one's own: tells whether a pooler stands before PostgreSQL, and listens for producers.

A pooler in transaction mode gives each transaction any session. What a session keeps (LISTEN, its own settings, locks)
is then someone else's. Statements are kept only where nobody is between (`pool`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from psycopg import Connection

from outbox.errors import PooledAddress
from outbox.store.pool import connect, is_between, session_pid, translated

# An idle pooler hands out the session that was given back last: the first round shows it. A busy one takes some more.
ROUNDS: Final = 20

Connecting = Callable[[], Connection[Any]]


def shares_sessions(connection: Connection[Any], another: Connecting) -> bool:
    """Seen with one's own eyes: two connections in one session, or one that moved. In session mode neither happens."""
    if not is_between(connection):
        return False
    with another() as other:
        first = session_pid(connection)
        for _ in range(ROUNDS):
            if session_pid(other) == first or session_pid(connection) != first:
                return True
    return False


def require_own_session(connection: Connection[Any], another: Connecting) -> None:
    if shares_sessions(connection, another):
        raise PooledAddress


CHANNEL: Final = "search_outbox"
SETTLED: Final = "search_outbox_settled"


_session = partial(connect, application="outbox-listen")


@contextmanager
def ear(url: str, channel: str = CHANNEL) -> Iterator[Callable[[float], bool]]:
    """What it yields waits so many seconds, and says whether somebody notified."""
    with _session(url) as connection:
        with translated():
            require_own_session(connection, partial(_session, url))
            connection.execute(f"listen {channel}")
        yield partial(_notified, connection)


def _notified(connection: Connection[Any], seconds: float) -> bool:
    """One word is enough however many came; a silent connection is asked whether it still listens."""
    with translated():
        for _ in connection.notifies(timeout=seconds, stop_after=1):
            return True
        connection.execute("select 1")
    return False
