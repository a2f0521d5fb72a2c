"""Removes finished events in small steps and keeps what versions still need. Keeps no time."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import Connection

from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.event import DELETE, UPSERT
from outbox.policy.prune_steps import PrunePlace, PruneStep
from outbox.store import audit
from outbox.store.entity_types import kept_by_view
from outbox.store.pool import Database, TopicStore

PRUNE_KEY: Final = 7_306_240_312  # beside the reclaim lock's
# Asking for other events of the same entities reads the table where no entity index is; longer than this, and the rows
# in question stay for another pass.
QUESTION_LIMIT_MS: Final = 1_000
ASK_AGAIN_SECONDS: Final = 600.0  # a question that took too long is not asked at every step: the drain would notice


class PostgresRetention(TopicStore, topic="pruning"):
    """Of a type that the view keeps nothing has to stay. Of any other each entity's newest done event does, and a
    delete while an older event of its entity may still come."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._not_before = 0.0

    def step(self, before: datetime, place: PrunePlace, rows: int, by: Actor | None = None) -> PruneStep | None:
        """One step, in one transaction, written down in it for a person; None when another process prunes."""
        with self._database.transaction() as connection:
            locked = connection.execute(self._sql["lock"], {"key": PRUNE_KEY}).fetchone()
            if not locked or not locked[0]:
                return None
            named = {"before": before, "after_at": place.at, "after_id": place.id, "limit": rows}
            found = connection.execute(self._sql["candidates"], named).fetchall()
            if not found:
                return PruneStep(0, 0, 0, place)
            kept, skipped = self._kept(connection, found)
            gone = [row[0] for row in found if row[0] not in kept]
            attempts = connection.execute(self._sql["remove_attempts"], {"ids": gone}).rowcount
            removed = connection.execute(self._sql["remove"], {"ids": gone}).rowcount
            if by is not None and removed:
                detail = {"removed": removed, "kept": len(found) - removed, "before": before.isoformat()}
                audit.write(connection, [Entry(Action.EVENTS_PRUNE_SUMMARY, by, detail=detail)])
            return PruneStep(len(found), removed, attempts, PrunePlace(found[-1][1], found[-1][0]), skipped)

    def forget(self, query: str, age: timedelta, limit: int) -> int:
        """Old rows of another table."""
        return self._run(query, age=age, limit=limit)

    def preview(self, before: datetime, most: int) -> tuple[int, datetime | None, datetime | None]:
        with self._database.transaction(read_only=True) as connection:
            row = connection.execute(self._sql["preview"], {"before": before, "most": most}).fetchone()
            return (row[0], row[1], row[2]) if row else (0, None, None)

    def _kept(self, connection: Connection[Any], found: Sequence[tuple[Any, ...]]) -> tuple[set[UUID], int]:
        """The rows that must stay, and how many of them only because the question took too long. What is declared is
        read before, and locked: a type that the view keeps is not changed before these rows are gone."""
        viewed = kept_by_view(connection, sorted({row[4] for row in found}))
        asked = [id for id, _, status, op, kind in found if status == "done" and op in _OPS and kind not in viewed]
        answer = self._ask(connection, asked) if asked else set()
        return (set(asked), len(asked)) if answer is None else (answer, 0)

    def _ask(self, connection: Connection[Any], ids: Sequence[UUID]) -> set[UUID] | None:
        """None when it takes too long. A savepoint, so that the step goes on."""
        if time.monotonic() < self._not_before:
            return None
        try:
            with connection.transaction():
                connection.execute(_LIMIT, [str(QUESTION_LIMIT_MS)])
                return {row[0] for row in connection.execute(self._sql["needed"], {"ids": list(ids)}).fetchall()}
        except psycopg.errors.QueryCanceled:
            self._not_before = time.monotonic() + ASK_AGAIN_SECONDS
            return None
        finally:
            connection.execute(_LIMIT, ["0"])


_OPS: Final = (UPSERT, DELETE)
_LIMIT: Final = "select set_config('statement_timeout', %s, true)"
