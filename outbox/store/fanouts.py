"""Reads fan-outs, runs their attachments' queries, writes the refreshes page by page. Decides nothing."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

import psycopg
from psycopg import sql

from outbox.errors import DatabaseDown, OutboxError
from outbox.policy.event import Event
from outbox.policy.fanout import KEY_BYTES, Fanout, query_failed
from outbox.policy.outcome import Failure
from outbox.policy.redact import redact
from outbox.store.pool import QueryCancelled, TopicStore

FIND_MS: Final = 60_000  # a query that takes longer fails its fan-out, and holds up a lane for no longer

T = TypeVar("T")


class PostgresFanouts(TopicStore, topic="fanouts"):
    def read(self, events: Sequence[Event]) -> Sequence[Fanout]:
        """In the order of the events; one whose row is gone has no attachment."""
        rows = self._rows("read", ids=[event.id for event in events], key_bytes=KEY_BYTES)
        found = {row.pop("id"): row for row in rows}
        return [Fanout(event, **found[event.id]) if event.id in found else Fanout(event) for event in events]

    def find(self, fanout: Fanout, keys: Sequence[str], most: int) -> Sequence[str] | Failure:
        """In a snapshot of its own, taken now: after the claim. With parameters the server takes one statement only."""
        named = {"keys": f"[{','.join(keys)}]", "after": fanout.cursor, "most": most}
        path = sql.SQL(", ").join(map(sql.Identifier, (*fanout.path, "pg_temp")))
        query = sql.SQL(self._sql["find"]).format(table=_verbatim(fanout.table), via=_verbatim(fanout.via))

        def run() -> Sequence[str]:
            with self._database.transaction(read_only=True, timeout_ms=FIND_MS) as connection:
                connection.execute("select set_config('search_path', %s, true)", [path.as_string(connection)])
                return [id for (id,) in connection.execute(query, named).fetchall()]

        return _or_failure(run, fanout)

    def open_refreshes(self, most: int) -> int:
        return int(self._value("open_refreshes", most=most) or 0)

    def write(self, fanout: Fanout, token: UUID, ids: Sequence[str]) -> int | Failure:
        """How many refreshes were written: none where the fan-out is not ours any more."""
        named = {
            "id": fanout.event.id,
            "token": token,
            "after": fanout.cursor,
            "until": ids[-1],
            "ids": list(ids),
            "entity_type": fanout.entity_type,
        }

        return _or_failure(lambda: self._run("write_page", **named), fanout)


def _or_failure(run: Callable[[], T], fanout: Fanout) -> T | Failure:
    """What the database says against the query is the fan-out's; an outage is nobody's."""
    try:
        return run()
    except QueryCancelled:
        return query_failed(fanout, "57014", f"it took over {FIND_MS / 1000:g} s")
    except DatabaseDown:
        raise
    except (OutboxError, psycopg.Error) as error:
        cause = error if isinstance(error, psycopg.Error) else error.__cause__
        if not isinstance(cause, psycopg.Error):
            raise
        return query_failed(fanout, cause.sqlstate, redact(cause.diag.message_primary or type(cause).__name__))


def _verbatim(text: str | None) -> sql.Composable:
    """Of our own table, which only the owner writes."""
    return sql.SQL((text or "").replace("%", "%%"))
