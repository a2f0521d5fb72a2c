"""Creates, shows and cancels replays. The steps that move one are in `replay_steps`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from psycopg import Connection
from psycopg.rows import dict_row

from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.filter import EventFilter, given
from outbox.policy.replay import Lease, ReplayBatch
from outbox.policy.webhook import Notice
from outbox.store.events import entity_id_type
from outbox.store.filters import event_where
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.replay_steps import LEASE, batch_of, close, ended_since, fetch_batch

Notices = Callable[[ReplayBatch], Sequence[Notice]]
Row = Mapping[str, Any]


class _NothingPinned(Exception):
    """Rolls the transaction back."""


class PostgresReplays:
    """`owner` names this process to people who look at a batch; the lease's token is what counts."""

    def __init__(self, database: Database, *, owner: str, notices: Notices) -> None:
        self._database = database
        self._owner = owner
        self._notices = notices
        self._sql = queries("replays")

    def create(
        self, lease: Lease, about: Mapping[str, Any], asked: EventFilter, limit: int, *, pinned: Sequence[UUID] = ()
    ) -> int | None:
        """Pins rows and says how many; 0 leaves nothing behind. None: this client id has asked before.

        `pinned` ids are taken as they are, known or not; otherwise the filter finds them, up to the limit.
        """
        try:
            with self._database.transaction() as connection:
                named = {**about, **lease._asdict(), "owner": self._owner, "lease": LEASE}
                named["filter"] = orjson.dumps(given(asked)).decode()
                if connection.execute(self._sql["create"], named).fetchone() is None:
                    return None
                total = self._pin(connection, lease.id, asked, limit, pinned)
                connection.execute(self._sql["set_total"], {"id": lease.id, "total": total})
                if not total:
                    raise _NothingPinned
                return total
        except _NothingPinned:
            return 0

    def _pin(
        self, connection: Connection[Any], id: UUID, asked: EventFilter, limit: int, pinned: Sequence[UUID]
    ) -> int:
        if pinned:
            named = {"id": id, "ids": list(pinned)[:limit]}
            known = connection.execute(self._sql["known"], named).fetchone()
            return connection.execute(self._sql["pin_ids"], named).rowcount if known and known[0] else 0
        where = event_where(asked, "failed_at", entity_id_type(connection))
        query = where.into(self._sql["pin_chosen" if asked.ids else "pin_matching"])
        named = {"id": id, "ids": list(asked.ids), "limit": limit, **where.parameters}
        return connection.execute(query, named).rowcount

    def cancel(self, id: UUID, actor: Actor, reason: str) -> ReplayBatch | None:
        """Stops a batch wherever it is, after the step that runs. None: it is over already, or unknown."""
        with self._database.transaction() as connection:
            if fetch_batch(connection, "hold_live", {"id": id}) is None:
                return None
            named = {"id": id, "by": actor.name, "reason": reason, **ended_since(connection, id)}
            batch = fetch_batch(connection, "cancel", named)
            assert batch is not None
            close(connection, batch, self._notices(batch), Entry(Action.REPLAY_CANCELLED, actor, reason, id))
            return batch

    def get(self, id: UUID) -> ReplayBatch | None:
        with self._database.connection() as connection:
            return fetch_batch(connection, "get", {"id": id})

    def by_client(self, client_id: str) -> ReplayBatch | None:
        with self._database.connection() as connection:
            return fetch_batch(connection, "by_client", {"client_id": client_id})

    def page(self, before: datetime, before_id: UUID, limit: int, *, live: bool) -> Sequence[ReplayBatch]:
        named = {"before": before, "before_id": before_id, "limit": limit, "live": live}
        return [batch_of(row) for row in self._rows("page", named)]

    def items(self, id: UUID, limit: int) -> Sequence[Row]:
        return self._rows("items", {"id": id, "limit": limit})

    def forget(self, age: timedelta, limit: int) -> int:
        with self._database.connection() as connection:
            return connection.execute(self._sql["forget"], {"age": age, "limit": limit}).rowcount

    def _rows(self, query: str, named: Mapping[str, Any]) -> Sequence[Row]:
        with self._database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._sql[query], named).fetchall()
