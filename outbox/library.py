"""`Outbox` and `AsyncOutbox`, the API for programs: events in your own transaction, failed events, replays. Prints
nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, overload
from uuid import UUID

from outbox.app.desk import QueueDesk, open_desk
from outbox.app.operations import Operations, open_operations
from outbox.app.settling import open_settle_watch
from outbox.config import Settings, load_settings
from outbox.errors import NotFound, WrongArgument
from outbox.ops.failures import FailedStats
from outbox.ops.replay.desk import ReplayResult
from outbox.ops.settling import SettleWatch, Subject
from outbox.ops.stored_event import StoredEvent
from outbox.policy.audit import Actor, Source
from outbox.policy.event import Status
from outbox.policy.inputs import read_event_filter
from outbox.ports import EntityWait
from outbox.producers import awaiting, call, writing

if TYPE_CHECKING:
    from outbox.producers.connection import AsyncProducerConnection, ProducerConnection

T = TypeVar("T")

_PAGE: Final = 500
_NAME: Final = "outbox library"
_LONGEST_WAIT: Final = 300  # whoever needs longer has a queue to watch: `outbox wait --caught-up`


@dataclass
class _Opened:
    stack: ExitStack = field(default_factory=ExitStack)
    lock: threading.Lock = field(default_factory=threading.Lock)
    watch: SettleWatch | None = None
    watching: threading.Lock = field(default_factory=threading.Lock)  # apart: to open a watch waits for no server
    made: dict[Callable[..., Any], Any] = field(default_factory=dict)  # by what opened it


class _Installation:
    """What both classes have: settings, and one reader for all who wait, in whichever thread."""

    def __init__(self, database_url: str | None = None) -> None:
        self._settings = _settings(database_url)
        # By process id. A forked process opens its own; its parent's stay here, untouched, because a connection that
        # two processes use, or that the child closes, breaks for the parent too.
        self._by_process: dict[int, _Opened] = {}

    def _opened(self) -> _Opened:
        return self._by_process.setdefault(os.getpid(), _Opened())

    def _close(self) -> None:
        opened = self._by_process.pop(os.getpid(), None)
        if opened is not None:
            opened.stack.close()

    def _settle_watch(self) -> SettleWatch:
        opened = self._opened()
        with opened.watching:
            if opened.watch is None:
                opened.watch = opened.stack.enter_context(open_settle_watch(self._settings, application=_NAME))
            return opened.watch


class Outbox(_Installation):
    """One installation, by its database URL, or by the environment variables that the commands read.

    It connects only when needed: `enqueue` uses only the caller's connection.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._close()

    def enqueue(
        self,
        connection: ProducerConnection,
        entity_type: str,
        entity_id: object,
        op: str,
        payload: call.Payload = None,
        **more: Unpack[call.EventColumns],
    ) -> UUID:
        """Write one event in the caller's transaction and return its id. For a known `idempotency_key`: its id.

        `connection` is psycopg's (or a cursor of it), SQLAlchemy's (or a session), or Django's. One in autocommit is
        refused (NoTransaction): the event would be committed without its change, or the change without its event.

        `op` is `upsert`, `delete` or `refresh`. A payload given as text or bytes is JSON and is kept exactly. If it is
        None, the document comes from the view. PostgreSQL rejects what cannot be projected (SQLSTATE class 22).
        """
        return writing.write(connection, call.enqueue(entity_type, entity_id, op, payload, **more))

    def refresh(
        self,
        connection: ProducerConnection,
        entity_type: str,
        entity_id: object,
        **more: Unpack[call.RefreshColumns],
    ) -> UUID:
        """Write in the caller's transaction that this entity may have changed, and return the event's id. Its document
        becomes what the view holds then, or is deleted if the view has no row. `routing` is its current routing."""
        return writing.write(connection, call.refresh(entity_type, entity_id, **more))

    @overload
    def wait(self, id: UUID | str, seconds: float = 2.0) -> Status: ...

    @overload
    def wait(self, id: str, entity_id: object, seconds: float = 2.0) -> Status: ...

    def wait(self, id: UUID | str, *about: Any, **named: Any) -> Status:
        """Wait until an event is settled, at most `seconds`, and return its state then: `done`, `failed` or
        `discarded`, and else `pending` or `processing`. Call it after your commit; NotFound if the event is never seen,
        and DatabaseDown if PostgreSQL does not answer, at most two seconds later than asked.

        `wait("article", 5)` waits for an entity, whose events triggers write: until all of its events and all fan-outs
        to its type that were committed before are settled. `failed` if one of its events is failed.

        When it is done, the document can be read by its id. A search finds it after the next refresh of the index.
        All who wait on one Outbox share one reader, so keep one per process.
        """
        subject, longest = _subject(id, *about, **named)
        return _seen(subject, self._settle_watch().wait(subject, longest))

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
        return self._once(open_desk)

    def _operator(self) -> Operations:
        return self._once(open_operations)

    def _once(self, opening: Callable[..., AbstractContextManager[T]]) -> T:
        opened = self._opened()
        with opened.lock:
            if opening not in opened.made:
                opened.made[opening] = opened.stack.enter_context(opening(self._settings, application=_NAME))
            made: T = opened.made[opening]
            return made


class AsyncOutbox(_Installation):
    """The same for a program with an event loop: `await outbox.enqueue(...)`, `refresh(...)`, `wait(...)`.

    Failed events and replays are left to `Outbox`, in a thread (`asyncio.to_thread`).
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def enqueue(
        self,
        connection: AsyncProducerConnection,
        entity_type: str,
        entity_id: object,
        op: str,
        payload: call.Payload = None,
        **more: Unpack[call.EventColumns],
    ) -> UUID:
        """As `Outbox.enqueue`. `connection` is psycopg's AsyncConnection (or a cursor of it), asyncpg's Connection, or
        SQLAlchemy's AsyncConnection or AsyncSession."""
        return await awaiting.write(connection, call.enqueue(entity_type, entity_id, op, payload, **more))

    async def refresh(
        self,
        connection: AsyncProducerConnection,
        entity_type: str,
        entity_id: object,
        **more: Unpack[call.RefreshColumns],
    ) -> UUID:
        """As `Outbox.refresh`, with a connection as `enqueue` takes it."""
        return await awaiting.write(connection, call.refresh(entity_type, entity_id, **more))

    @overload
    async def wait(self, id: UUID | str, seconds: float = 2.0) -> Status: ...

    @overload
    async def wait(self, id: str, entity_id: object, seconds: float = 2.0) -> Status: ...

    async def wait(self, id: UUID | str, *about: Any, **named: Any) -> Status:
        """As `Outbox.wait`, without a thread per waiting call."""
        subject, longest = _subject(id, *about, **named)
        return _seen(subject, await self._settle_watch().awaited(subject, longest))


def _subject(id: UUID | str, *about: Any, **named: Any) -> tuple[Subject, float]:
    """`wait(id, seconds)` or `wait(entity_type, entity_id, seconds)`. An event's id is a uuid, and no type is one."""
    by_event = not (about or "entity_id" in named) or _uuid(id) is not None
    order = ("seconds",) if by_event else ("entity_id", "seconds")
    given = {**dict(zip(order, about, strict=False)), **named}
    if len(about) > len(order) or given.keys() - set(order):
        raise TypeError("wait takes (id, seconds) or (entity_type, entity_id, seconds)")
    longest = _bounded(given.get("seconds", 2.0))
    return (_id(id) if by_event else EntityWait(str(id), str(given["entity_id"]))), longest


def _uuid(value: UUID | str) -> UUID | None:
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        return None


def _seen(subject: Subject, status: Status | None) -> Status:
    if status is not None:
        return status
    elsewhere = "producers write to search_outbox_log, whose events are rows here only if they fail"
    if isinstance(subject, EntityWait):
        raise NotFound(f"{subject.entity_type} {subject.entity_id}: {elsewhere}; see `outbox wait --caught-up`")
    raise NotFound(f"event {subject}: its transaction is not committed, or was rolled back; or {elsewhere}")


def _bounded(seconds: float) -> float:
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise WrongArgument(f"wait: {seconds} is not from 0 to {_LONGEST_WAIT} seconds")
    return seconds


def _settings(database_url: str | None) -> Settings:
    """With a URL the environment is ignored: the calling program may use it for something else."""
    given = {} if database_url is None else {"DATABASE_URL": database_url}
    return load_settings(environ={} if given else None, flags=given)


def _id(value: UUID | str) -> UUID:
    if (id := _uuid(value)) is None:
        raise WrongArgument(f"{str(value)[:80]!r} is not an event's id, which is a uuid")
    return id
