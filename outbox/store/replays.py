"""Keeps replays: creates, shows and cancels them, and moves them from state to state. Keeps no time.

Each step of a batch is one short transaction, fenced by the batch's lease; its audit rows are written in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import Connection

from outbox.policy.audit import Action, Actor, Entry, Source
from outbox.policy.inputs import EventFilter, given
from outbox.policy.replay import (
    LEASE_SECONDS,
    Dispatched,
    ReplayBatch,
    ReplayLease,
    ReplayStatus,
    check_delay_seconds,
    judge_check,
)
from outbox.policy.webhook import Notice
from outbox.store import audit, webhooks
from outbox.store.filters import event_filter
from outbox.store.pool import Database, TopicStore, fetch_row, fetch_rows
from outbox.store.queries import queries

LEASE: Final = timedelta(seconds=LEASE_SECONDS)
_NAMES: Final = tuple(field.name for field in fields(ReplayBatch))

Notices = Callable[[ReplayBatch], Sequence[Notice]]
Row = Mapping[str, Any]


class _NothingPinned(Exception):
    """Rolls the transaction back."""


class PostgresReplays(TopicStore, topic="replays"):
    """Each step of a replay is a compare-and-set under its lease; its creator and the daemons share them. `owner` names
    this process to people who read a batch; the lease's token is what counts."""

    def __init__(self, database: Database, *, owner: str, notices: Notices) -> None:
        super().__init__(database)
        self._owner = owner
        self._notices = notices

    def create(
        self,
        lease: ReplayLease,
        about: Mapping[str, Any],
        asked: EventFilter,
        limit: int,
        *,
        pinned: Sequence[UUID] = (),
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
        query = self._sql["pin_chosen" if asked.ids else "pin_matching"]
        named = {"id": id, "ids": list(asked.ids), "limit": limit, **event_filter(connection, asked)}
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
        return self._batch("get", id=id)

    def by_client(self, client_id: str) -> ReplayBatch | None:
        return self._batch("by_client", client_id=client_id)

    def _batch(self, query: str, **named: Any) -> ReplayBatch | None:
        row = self._row(query, **named)
        return None if row is None else batch_of(row)

    def page(self, before: datetime, before_id: UUID, limit: int, *, live: bool) -> Sequence[ReplayBatch]:
        rows = self._rows("page", before=before, before_id=before_id, limit=limit, live=live)
        return [batch_of(row) for row in rows]

    def items(self, id: UUID, limit: int) -> Sequence[Row]:
        return self._rows("items", id=id, limit=limit)

    # queued, dispatching

    def take_over(self, limit: int) -> Sequence[ReplayLease]:
        """Batches whose creator is gone."""
        return self._leases("take_over", limit=limit)

    def begin(self, lease: ReplayLease) -> bool:
        return self._changed("begin", lease)

    def renew(self, lease: ReplayLease) -> bool:
        return self._changed("renew", lease)

    def let_go(self, lease: ReplayLease) -> None:
        self._run("let_go", **lease._asdict())

    def dispatch(self, lease: ReplayLease, rows: int) -> Dispatched | None:
        """The next pinned rows. None: the batch is no longer ours, or no longer dispatching."""
        with self._database.transaction() as connection:
            batch = self._hold(connection, lease, ReplayStatus.DISPATCHING)
            if batch is None:
                return None
            about = {"explicit": batch.explicit, "by": batch.requested_by, "reason": batch.requested_reason}
            moved = fetch_rows(connection, self._sql["dispatch"], {"id": batch.id, "limit": rows, **about})
            skipped = sum(1 for row in moved if row["skip_reason"] is not None)
            counts = {"id": batch.id, "replayed": len(moved) - skipped, "skipped": skipped, "lease": LEASE}
            row = connection.execute(self._sql["count_step"], counts).fetchone()
            audit.write(connection, [_item(batch, each) for each in moved])
            return Dispatched(len(moved) - skipped, skipped, int(row[0]) if row else 0)

    def finish_dispatch(self, lease: ReplayLease) -> bool:
        return self._changed("finish_dispatch", lease, delay=timedelta(seconds=check_delay_seconds(0)))

    def fail(self, lease: ReplayLease, failure_type: str, reason: str) -> ReplayBatch | None:
        return self._end("fail", lease, failure_type=failure_type, reason=reason)

    # following

    def take_checks(self, limit: int, id: UUID | None = None) -> Sequence[ReplayLease]:
        return self._leases("take_checks", limit=limit, id=id)

    def check(self, lease: ReplayLease, max_polls: int) -> ReplayBatch | None:
        """What has ended since the last check, and what that means. None: another process checks it."""
        with self._database.transaction() as connection:
            batch = self._hold(connection, lease, ReplayStatus.FOLLOWING)
            if batch is None:
                return None
            ended = ended_since(connection, batch.id)
            n = sum(ended.values())
            verdict = judge_check(batch.poll_count, n, batch.still_open - n, max_polls)
            named = {"id": batch.id, **ended, **verdict._asdict(), "delay": timedelta(seconds=verdict.delay_seconds)}
            checked = fetch_batch(connection, "checked", named)
            if checked is not None and checked.is_over:
                close(connection, checked, self._notices(checked))
            return checked

    def take_settles(self, limit: int, id: UUID | None = None) -> Sequence[ReplayLease]:
        return self._leases("take_settles", limit=limit, id=id)

    def settle(self, lease: ReplayLease) -> ReplayBatch | None:
        return self._end("settle", lease)

    def tell(self, limit: int) -> Sequence[tuple[ReplayBatch, int, int]]:
        """(batch, rows replayed, rows skipped) since a daemon last reported; each batch to one caller alone."""
        return [(batch_of(row), row["newly_replayed"], row["newly_skipped"]) for row in self._rows("tell", limit=limit)]

    def _end(self, query: str, lease: ReplayLease, **named: Any) -> ReplayBatch | None:
        with self._database.transaction() as connection:
            batch = fetch_batch(connection, query, {**lease._asdict(), **named})
            if batch is not None:
                close(connection, batch, self._notices(batch))
            return batch

    def _hold(self, connection: Connection[Any], lease: ReplayLease, status: ReplayStatus) -> ReplayBatch | None:
        return fetch_batch(connection, "hold", {**lease._asdict(), "status": status})

    def _changed(self, query: str, lease: ReplayLease, **named: Any) -> bool:
        return self._one(query, **lease._asdict(), lease=LEASE, **named) is not None

    def _leases(self, query: str, **named: Any) -> Sequence[ReplayLease]:
        return [ReplayLease(*row) for row in self._all(query, owner=self._owner, lease=LEASE, **named)]


def fetch_batch(connection: Connection[Any], query: str, named: Mapping[str, Any]) -> ReplayBatch | None:
    row = fetch_row(connection, queries("replays")[query], named)
    return None if row is None else batch_of(row)


def batch_of(row: Row) -> ReplayBatch:
    filter_text = row["filter"]
    parsed = {"status": ReplayStatus(row["status"]), "filter": orjson.loads(filter_text) if filter_text else None}
    return ReplayBatch(**{name: row[name] for name in _NAMES if name in row} | parsed)


def ended_since(connection: Connection[Any], id: UUID) -> dict[str, int]:
    """Writes down which rows have come to an end since the last check, and counts them."""
    row = connection.execute(queries("replays")["check"], {"id": id}).fetchone()
    return dict(zip(("done", "failed", "discarded"), row or (0, 0, 0), strict=True))


def close(connection: Connection[Any], batch: ReplayBatch, notices: Sequence[Notice], *first: Entry) -> None:
    """The summary and the webhooks belong to the transaction that ends the batch."""
    webhooks.enqueue(connection, notices)
    counts = {name: getattr(batch, name) for name in _COUNTS}
    detail = {"status": batch.status, **counts, "why": batch.reason}
    summary = Entry(Action.REPLAY_BATCH_SUMMARY, _actor(batch), batch.requested_reason, batch.id, detail=detail)
    audit.write(connection, [*first, summary])


_COUNTS: Final = ("total", "replayed", "skipped", "done", "failed_again", "still_open", "discarded")


def _item(batch: ReplayBatch, row: Row) -> Entry:
    skip = row["skip_reason"]
    return Entry(
        Action.REPLAY_BATCH_ITEM if skip is None else Action.REPLAY_BATCH_SKIPPED,
        _actor(batch),
        batch.requested_reason,
        batch.id,
        row["event_id"],
        row["entity_type"],
        row["entity_id"],
        row["trace_id"],
        {"replay_count": row["replay_count"]} if skip is None else {"skipped": skip},
    )


def _actor(batch: ReplayBatch) -> Actor:
    return Actor(batch.requested_by, Source(batch.source), batch.role)
