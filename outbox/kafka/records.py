"""Keeps the exceptions of a stream as rows, and answers what records are checked against. Decides nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import orjson
import psycopg
from psycopg import Connection

from outbox.errors import DatabaseDown, NotPermitted, SchemaMismatch
from outbox.policy.audit import Actor, Source
from outbox.policy.document import UNREADABLE
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Code, DeadReason, Failure, Reason, detail_without_reply
from outbox.policy.redact import LONGEST_ERROR_BYTES, cut, fingerprint
from outbox.policy.settle import Done, Failed, Released, RetryLater
from outbox.ports import NewerDelete, RecordRow
from outbox.store.backlog import open_events
from outbox.store.base import TopicStore
from outbox.store.events import PostgresEvents, failure_columns, raise_version, storable
from outbox.store.filters import entity_id_type, typed
from outbox.store.pool import Database

NOT_TEXT: Final = UNREADABLE + "the value is not JSON"
NOT_A_ROW: Final = UNREADABLE + "its names do not fit the table"
LOST_PAYLOAD: Final = "; its value could not be stored: read it at its place in the topic"


class MayNotStore(NotPermitted):
    """With OUTBOX_SOURCE=kafka the projector stores exceptions as events. Run
    `grant insert on search_outbox_events to ROLE` with the projector's role. Nothing was changed."""


class ColumnsTooShort(SchemaMismatch):
    """With OUTBOX_SOURCE=kafka the projector stores what is no event too, with the reason as its op, and columns of
    `search_outbox_events` are too short for that. Run the statement below, which rewrites nothing. Nothing was
    changed."""


class ForeignExceptions(SchemaMismatch):
    """This table has open or failed events that another Kafka group has stored, and this worker would write them to its
    own index. Two projections need two databases. To go on here with this group, let a worker of the other one finish
    these events, replay or discard them, then start again. Nothing was changed."""


class PostgresRecords(TopicStore, topic="records"):
    """Thread-safe: each call takes a connection of its own from the pool. `group` is in the key of every row."""

    def __init__(self, database: Database, events: PostgresEvents, *, owner: str, group: str) -> None:
        super().__init__(database)
        self._events = events
        self._owner = owner
        self._group = group
        self._id_type = ""  # of the column; asked for once, and again after an error

    def check(self) -> str:
        """Asked at the start: a right that is missing would show at the first exception only. The database's id."""
        if not self._value("may_store"):
            raise MayNotStore
        if limited := self._value("limited"):
            changes = ", ".join(f"alter column {name} type text" for name in limited)
            raise ColumnsTooShort(f"`alter table search_outbox_events {changes}`")
        if foreign := self._one("foreign", group=self._group):
            raise ForeignExceptions(
                f"one of them is {foreign[0]}, key {foreign[1]}; this worker's group is {self._group}"
            )
        return str(self._value("database"))

    def store(self, rows: Sequence[RecordRow]) -> None:
        """One statement, as nearly always. Where the database refuses that (a payload that is no JSON, an id that its
        column cannot hold), halves, down to the row at fault, which is stored without what it cannot have."""
        try:
            self._store(rows)
        except DatabaseDown:
            raise
        except (psycopg.Error, UnicodeDecodeError) as error:
            self._id_type = ""
            self._store_halves(rows, error)

    def _store_halves(self, rows: Sequence[RecordRow], error: Exception) -> None:
        if len(rows) > 1:
            half = len(rows) // 2
            self.store(rows[:half])
            self.store(rows[half:])
            return
        for spoiled in (_without_payload, _without_names):
            try:
                self._store([spoiled(rows[0])])
            except DatabaseDown:
                raise
            except psycopg.Error:
                continue
            return
        raise SchemaMismatch(f"{rows[0].key} cannot be stored: {type(error).__name__}") from error

    def _store(self, rows: Sequence[RecordRow]) -> None:
        given = [_given(place, row, self._group) for place, row in enumerate(rows, 1)]
        payloads = [None if row.event.payload is None else row.event.payload.decode() for row in rows]
        with self._database.connection() as connection:
            query = self._typed("store", connection)
            named = {"rows": storable(orjson.dumps(given).decode(), connection), "payloads": payloads}
            connection.execute(query, named | {"owner": self._owner})

    def topic_before(self, topic: str, topic_id: str) -> str | None:
        """Notes the topic's id, and says under which one this group has read it before."""
        stream = f"{topic}@{self._group}"
        before: str | None = self._value("topic_before", stream=stream, topic_id=topic_id, owner=self._owner)
        return before

    def newer_deletes(self, events: Sequence[Event]) -> Mapping[UUID, NewerDelete]:
        """Its columns go as JSON: psycopg writes an array item by item, 3.8 us of CPU per event instead of 0.6."""
        columns = {
            "types": [event.entity_type for event in events],
            "entities": [event.entity_id for event in events],
            "routings": [event.routing for event in events],
            "versions": [event.event_version for event in events],
        }
        named = {name: orjson.dumps(column).decode() for name, column in columns.items()}
        with self._database.connection() as connection:
            rows = self._newer_deletes(connection, named)
        return {events[place - 1].id: NewerDelete(version, routing) for place, version, routing in rows}

    def _newer_deletes(self, connection: Connection[Any], named: Mapping[str, Any]) -> list[Any]:
        """An id that the column cannot hold has no delete there; then the others are compared as text."""
        try:
            return connection.execute(self._typed("newer_deletes", connection), named).fetchall()
        except psycopg.DataError:
            self._id_type = ""
            return connection.execute(typed(self._sql["newer_deletes"], "text"), named).fetchall()

    def _typed(self, name: str, connection: Connection[Any]) -> LiteralString:
        """A question less for every batch of a backlog: lanes waited for it for a tenth of their time."""
        self._id_type = self._id_type or entity_id_type(connection)
        return typed(self._sql[name], self._id_type)

    def open_events(self, topic: str) -> Mapping[int, int]:
        with self._database.connection() as connection:
            return open_events(connection, topic, self._group)

    def unseen(self, transactions: Iterable[int]) -> set[int]:
        return {row[0] for row in self._all("unseen", transactions=list(transactions))}

    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        return self._events.deleted(events)

    def last_version(self) -> int:
        return self._events.last_version()

    def raise_version(self, seen: int) -> int | None:
        return raise_version(self._database, seen, Actor(self._owner, Source.DAEMON))

    def now(self) -> float:
        return float(self._value("now"))


def _given(place: int, row: RecordRow, group: str) -> dict[str, Any]:
    """One row of what `store` reads; what is missing is null there."""
    event = row.event
    return {
        "place": place,
        "id": event.id,
        "key": f"{row.key}@{group}",
        "entity_type": event.entity_type,
        "entity_id": event.entity_id,
        "op": event.op,
        "event_version": event.event_version,
        "routing": event.routing,
        "traceparent": event.traceparent,
        "occurred_at": row.occurred_at,
        "attempts": 1,
        "abandoned": 0,
        **_verdict(row),
    }


def _verdict(row: RecordRow) -> dict[str, Any]:
    match row.settlement:
        case None:
            return _abandoned(row.error)
        case Done():
            return {"status": "done", "op": DELETE}
        case RetryLater(delay_seconds=delay, failure=failure):
            return {"status": "pending", "delay": delay, "own": not failure.whole, **_columns(failure)}
        case Failed(failure=failure, dead_reason=dead_reason):
            return {"status": "failed", "dead_reason": dead_reason, "own": not failure.whole, **_columns(failure)}
        case Released(delay_seconds=delay, failure=released):
            columns = _columns(released) if released else {}
            return {"status": "pending", "attempts": 0, "delay": delay, **columns, "detail": None}


def _abandoned(error: str) -> dict[str, Any]:
    told = cut(f"crash_suspect: {error}", LONGEST_ERROR_BYTES)
    return {
        "status": "pending",
        "abandoned": 1,
        "reason": Reason.CRASH_SUSPECT,
        "code": Code.PRECONDITION_FAILED,
        "error": told,
        "fingerprint": fingerprint(Reason.CRASH_SUSPECT, told),
    }


def _columns(failure: Failure) -> dict[str, Any]:
    return {**failure_columns(failure), "detail": failure.error_detail}


def _without_payload(row: RecordRow) -> RecordRow:
    """With an op that no replay can take for an event: without its payload it would be looked up, or deleted."""
    failure = Failure(Reason.DETERMINISTIC, NOT_TEXT + LOST_PAYLOAD, Code.PAYLOAD_INVALID)
    return _spoiled(row, NOT_TEXT, failure)


def _without_names(row: RecordRow) -> RecordRow:
    failure = Failure(Reason.DETERMINISTIC, NOT_A_ROW + LOST_PAYLOAD, Code.PRECONDITION_FAILED)
    plain = row.event._replace(entity_type="unreadable", entity_id=str(row.event.id), routing=None, traceparent=None)
    return _spoiled(row._replace(event=plain), NOT_A_ROW, failure)


def _spoiled(row: RecordRow, op: str, failure: Failure) -> RecordRow:
    """What the sink said of it counts more than what the table cannot hold. A done delete stays one."""
    said = row.settlement
    if isinstance(said, Done):
        return row._replace(event=row.event._replace(payload=None, payload_bytes=None))
    if isinstance(said, Failed):
        failure = said.failure
    detail = {**(failure.detail or detail_without_reply(failure.reason, failure.error)), "record": row.key}
    mark = failure.fingerprint or fingerprint(failure.reason, failure.error)
    told = Failure(failure.reason, failure.error, failure.code, mark, detail)
    event = row.event._replace(op=op, payload=None, payload_bytes=None)
    return row._replace(event=event, settlement=Failed(told, DeadReason.NON_RETRYABLE))
