"""`Outbox`, the API for programs: enqueue in your own transaction, list failed events, replay them. Prints nothing."""

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
from outbox.ops.stored_event import StoredEvent
from outbox.policy.audit import Actor, Source
from outbox.policy.event import Status
from outbox.policy.inputs import read_event_filter

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


class ProducerConnection(Protocol):
    """A psycopg connection or cursor. A SQLAlchemy connection or session is accepted as well."""

    def execute(self, query: Any, params: Any = None, /) -> _Result: ...


class Outbox:
    """One installation, by its database URL, or by the environment variables that the commands read.

    It connects only when needed: `enqueue` uses only the caller's connection.
    """

    def __init__(self, database_url: str | None = None) -> None:
        # With a URL the environment is ignored: the calling program may use it for something else.
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
        connection: ProducerConnection,
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
        """Write one event in the caller's transaction and return its id. For a known `idempotency_key`: its id.

        `op` is `upsert`, `delete` or `refresh`. A payload given as text or bytes is JSON and is kept exactly. If it is
        None, the document comes from the view. PostgreSQL rejects what cannot be projected (SQLSTATE class 22).
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
        connection: ProducerConnection,
        entity_type: str,
        entity_id: object,
        *,
        routing: str | None = None,
        traceparent: str | None = None,
    ) -> UUID:
        """Write in the caller's transaction that this entity may have changed, and return the event's id. Its document
        becomes what the view holds then, or is deleted if the view has no row. `routing` is its current routing."""
        named = {"entity_type": entity_type, "entity_id": str(entity_id), "routing": routing}
        return _written(connection, _REFRESH, {**named, "traceparent": traceparent})

    def failed(self, limit: int = 100, offset: int = 0, **filter: Any) -> list[StoredEvent]:  # noqa: A002
        """Failed events, newest first. `filter` takes the names of the event filter, such as `entity_type`,
        `error_reason`, `fingerprint`, `since`."""
        asked = read_event_filter(filter, datetime.now(UTC))
        found: list[StoredEvent] = []
        after = ""
        while len(found) < offset + limit:
            page = self._reader().browse.page(asked, [Status.FAILED], min(_PAGE, offset + limit - len(found)), after)
            found += page.events
            after = page.next
            if not after:
                break
        return found[offset : offset + limit]

    def replay_one(self, id: UUID | str, by: str, reason: str) -> bool:
        """Replay one failed or discarded event. False if its state does not allow that, or it does not exist."""
        return self._operator().replays.replay_one(_id(id), Actor(by, Source.API), reason)

    def replay_many(self, ids: Iterable[UUID | str], by: str, reason: str) -> ReplayResult:
        """Replay up to 500 events. The result says which were replayed, and why the others were not."""
        return self._operator().replays.replay_many([_id(each) for each in ids], Actor(by, Source.API), reason)

    def failed_stats(self) -> FailedStats:
        """The number of failed events: total, by entity type, by reason, by failure type."""
        return self._operator().stats.failed()

    def _reader(self) -> QueueDesk:
        if self._desk is None:
            self._desk = self._open.enter_context(open_desk(self._settings, application=_NAME))
        return self._desk

    def _operator(self) -> Operations:
        if self._operations is None:
            self._operations = self._open.enter_context(open_operations(self._settings, application=_NAME))
        return self._operations


def _written(connection: Any, query: str, named: Mapping[str, Any]) -> UUID:
    row = _executing(connection)(query, named).fetchone()
    return row[0] if isinstance(row[0], UUID) else UUID(str(row[0]))


def _executing(connection: Any) -> Any:
    """The method that runs driver SQL: psycopg's `execute`, or SQLAlchemy's `exec_driver_sql`."""
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
    """Times and ids have one obvious text. The caller must convert all else: a Decimal may be number or text."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form: convert it, or give the payload as JSON text")
