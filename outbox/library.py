"""`Outbox`, the door for programs: enqueue in your own transaction, look at failures, replay them. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import Any, Final, Protocol, Self
from uuid import UUID

from outbox.app.desk import QueueDesk, open_desk
from outbox.app.operations import Operations, open_operations
from outbox.config import Settings, load_settings
from outbox.errors import UsageError
from outbox.ops.failures import FailedStats
from outbox.ops.replay.desk import ReplayResult
from outbox.ops.stored import StoredEvent
from outbox.policy.audit import Actor, Source
from outbox.policy.event import Status
from outbox.policy.filter import read_event_filter

_ENQUEUE: Final = (
    "select outbox_enqueue(entity_type => %(entity_type)s, entity_id => %(entity_id)s, op => %(op)s,"
    " payload => %(payload)s::json, version => %(version)s::bigint, routing => %(routing)s,"
    " idempotency_key => %(idempotency_key)s, traceparent => %(traceparent)s)"
)
_REFRESH: Final = (
    "select outbox_refresh(entity_type => %(entity_type)s, entity_id => %(entity_id)s, routing => %(routing)s,"
    " traceparent => %(traceparent)s)"
)
_PAGE: Final = 500
_NAME: Final = "outbox library"


class _Result(Protocol):
    def fetchone(self) -> Any: ...


class Connection(Protocol):
    """A psycopg connection or cursor. A SQLAlchemy connection or session is accepted as well."""

    def execute(self, query: Any, params: Any = None, /) -> _Result: ...


class Outbox:
    """One installation, by its database's URL; without one, by the environment as the commands read it.

    Nothing is connected before it is needed: `enqueue` uses the caller's connection only.
    """

    def __init__(self, database_url: str | None = None) -> None:
        # A URL stands for itself: a program that embeds this may have an environment of its own.
        given = {} if database_url is None else {"DATABASE_URL": database_url}
        self._settings: Settings = load_settings(environ={} if given else None, flags=given)
        self._open = ExitStack()
        self._desk: QueueDesk | None = None
        self._operations: Operations | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._desk = self._operations = None
        self._open.close()

    def enqueue(
        self,
        connection: Connection,
        entity_type: str,
        entity_id: object,
        op: str,
        payload: Mapping[str, Any] | str | bytes | None = None,
        *,
        version: int | None = None,
        routing: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> UUID:
        """Write one event in the caller's transaction and return its id; the existing one for a known key.

        `op` is `upsert`, `delete` or `refresh`. A payload given as text or bytes is JSON that is kept as it stands,
        digit by digit; None is looked up in the view. PostgreSQL refuses what cannot be projected (SQLSTATE class 22).
        """
        named = {
            "entity_type": entity_type,
            "entity_id": str(entity_id),
            "op": op,
            "payload": _text(payload),
            "version": version,
            "routing": routing,
            "idempotency_key": idempotency_key,
            "traceparent": traceparent,
        }
        return _written(connection, _ENQUEUE, named)

    def refresh(
        self,
        connection: Connection,
        entity_type: str,
        entity_id: object,
        *,
        routing: str | None = None,
        traceparent: str | None = None,
    ) -> UUID:
        """Say in the caller's transaction that this entity may have changed, and return the event's id. Its document
        becomes what the view says, whatever was created, changed or deleted; `routing` is where it is now."""
        named = {"entity_type": entity_type, "entity_id": str(entity_id), "routing": routing}
        return _written(connection, _REFRESH, {**named, "traceparent": traceparent})

    def failed(self, limit: int = 100, offset: int = 0, **filter: Any) -> list[StoredEvent]:  # noqa: A002
        """Failed events, the newest first. `filter` takes the names of the one event filter, such as
        `entity_type`, `error_reason`, `fingerprint`, `since`."""
        asked = read_event_filter(filter, datetime.now(UTC))
        found: list[StoredEvent] = []
        after = ""
        while len(found) < offset + limit:
            page = self._looking().browse.page(asked, [Status.FAILED], min(_PAGE, offset + limit - len(found)), after)
            found += page.events
            after = page.next
            if not after:
                break
        return found[offset : offset + limit]

    def replay_one(self, id: UUID | str, by: str, reason: str) -> bool:
        """Send one failed (or discarded) event again. False where it is in no state for that, or unknown."""
        return self._acting().replays.replay_one(_id(id), Actor(by, Source.API), reason)

    def replay_many(self, ids: Iterable[UUID | str], by: str, reason: str) -> ReplayResult:
        """Send up to 500 events again; the result says which moved, and why the others did not."""
        return self._acting().replays.replay_many([_id(each) for each in ids], Actor(by, Source.API), reason)

    def failed_stats(self) -> FailedStats:
        """How many events are failed now: total, by entity type, by reason, by failure type."""
        return self._acting().stats.failed()

    def _looking(self) -> QueueDesk:
        if self._desk is None:
            self._desk = self._open.enter_context(open_desk(self._settings, application=_NAME))
        return self._desk

    def _acting(self) -> Operations:
        if self._operations is None:
            self._operations = self._open.enter_context(open_operations(self._settings, application=_NAME))
        return self._operations


def _written(connection: Any, query: str, named: Mapping[str, Any]) -> UUID:
    row = _executing(connection)(query, named).fetchone()
    return row[0] if isinstance(row[0], UUID) else UUID(str(row[0]))


def _executing(connection: Any) -> Any:
    """How to send driver SQL: psycopg's `execute`, or what SQLAlchemy offers for it."""
    if hasattr(connection, "get_bind"):  # a Session: its connection belongs to the same transaction
        connection = connection.connection()
    return getattr(connection, "exec_driver_sql", None) or connection.execute


def _id(value: UUID | str) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except ValueError:
        raise UsageError(f"{str(value)[:80]!r} is not an event's id, which is a uuid") from None


def _text(payload: Mapping[str, Any] | str | bytes | None) -> str | None:
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return payload.decode()
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> str:
    """Times and ids have one obvious text. All else is the caller's to decide: a Decimal could be either."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form: convert it, or give the payload as JSON text")
