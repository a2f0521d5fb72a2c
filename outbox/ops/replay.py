"""Replays: what a person does to failed events. Creates, shows and cancels them; `dispatch` moves them.

The creator dispatches, so that a replay works where no daemon runs; if it dies, a daemon goes on (`daemon/chores`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from outbox.errors import Conflict
from outbox.ops import request
from outbox.ops.dispatch import Dispatcher, Tell, patiently
from outbox.ops.request import BadRequest, NothingMatches
from outbox.policy.audit import Actor
from outbox.policy.filter import MOST_IDS, EventFilter, given
from outbox.policy.replay import DEFAULT_LIMIT, DEFAULT_RATE, MOST_ROWS, Lease, ReplayBatch
from outbox.policy.webhook import bad_url, is_allowed

MOST_SHOWN: Final = 500

Row = Mapping[str, Any]


class Replays(Protocol):
    def create(
        self, lease: Lease, about: Mapping[str, Any], asked: EventFilter, limit: int, *, pinned: Sequence[UUID] = ()
    ) -> int | None: ...
    def cancel(self, id: UUID, actor: Actor, reason: str) -> ReplayBatch | None: ...
    def by_client(self, client_id: str) -> ReplayBatch | None: ...
    def page(self, before: datetime, before_id: UUID, limit: int, *, live: bool) -> Sequence[ReplayBatch]: ...
    def items(self, id: UUID, limit: int) -> Sequence[Row]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What a person asks for. With ids and no limit the limit is their number; otherwise 100."""

    actor: Actor
    reason: str
    filter: EventFilter = field(default_factory=EventFilter)
    limit: int | None = None
    pinned: Sequence[UUID] = ()  # a plan's ids, which may be more than a person may list
    rate: float | None = None
    webhook_url: str | None = None
    client_id: str | None = None  # the same id asks for the same replay, however often it is sent


@dataclass(frozen=True, slots=True)
class Created:
    """`lease` is None when it was asked for before: whoever made it then moves it."""

    batch: ReplayBatch
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class ReplayDetail:
    """A batch, and its rows that did not simply become done (500 at most)."""

    batch: ReplayBatch
    items: Sequence[Row]


@dataclass(frozen=True, slots=True)
class ReplayPage:
    replays: Sequence[ReplayBatch]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Which ids moved, and which did not and why: their state at that moment, or `not_found`."""

    replayed: Sequence[UUID]
    skipped: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class ReplayDesk:
    store: Replays
    dispatcher: Dispatcher
    allowed_hosts: Sequence[str] = ()

    def create(self, asked: ReplayRequest) -> Created:
        """Pins the rows; nothing moves yet. Asked again with the same client id, it finds what it made before."""
        about, limit = self._about(asked)
        lease = Lease(uuid4(), uuid4())
        pinned = asked.pinned or (asked.filter.ids if set(given(asked.filter)) == {"ids"} else ())
        total = patiently(lambda: self.store.create(lease, about, asked.filter, limit, pinned=pinned))
        if total == 0:
            raise NothingMatches
        batch = self.store.by_client(about["client_id"])
        assert batch is not None
        _check_same(batch, asked)
        # The reply to the commit may have been lost, and the second try have met our own first one.
        return Created(batch, lease if batch.id == lease.id else None)

    def _about(self, asked: ReplayRequest) -> tuple[dict[str, Any], int]:
        if asked.webhook_url is not None:
            self._check_webhook(asked.webhook_url)
        client_id = asked.client_id and request.line("client_id", asked.client_id, 200)
        about = {
            "client_id": client_id or str(uuid4()),
            "by": request.line("by", asked.actor.name, request.LONGEST_NAME),
            "reason": request.reason(asked.reason),
            "role": asked.actor.role,
            "source": asked.actor.source,
            "rate": request.rate(asked.rate, DEFAULT_RATE),
            "webhook_url": asked.webhook_url,
        }
        return about, limit_of(asked.filter, asked.limit, asked.pinned)

    def _check_webhook(self, url: str) -> None:
        """A replay's own address must be one that the installation allows: anyone who may replay could name it."""
        wrong = bad_url(url, self.allowed_hosts)
        if wrong is None and not is_allowed(urlsplit(url).hostname or "", self.allowed_hosts):
            wrong = "its host is not in OUTBOX_WEBHOOK_ALLOWED_HOSTS"
        if wrong is not None:
            raise BadRequest([("webhook_url", wrong)])

    def dispatch(
        self, created: Created, tell: Tell = lambda _: None, stop: threading.Event | None = None
    ) -> ReplayBatch:
        """Moves the pinned rows at the batch's rate, to the end, unless someone cancels or `stop` is set."""
        if created.lease is None:
            return self.get(created.batch.id)
        return self.dispatcher.run(created.batch, created.lease, tell, stop)

    def wait(
        self, id: UUID, tell: Callable[[ReplayBatch], None] = lambda _: None, stop: threading.Event | None = None
    ) -> ReplayBatch:
        """Follows a batch until it is over."""
        return self.dispatcher.wait(id, tell, stop)

    def cancel(self, id: UUID, actor: Actor, reason: str) -> ReplayBatch:
        """What moved stays moved; a batch that is over is a conflict."""
        actor = request.actor(actor.name, actor.source, actor.role)
        batch = self.store.cancel(id, actor, request.reason(reason))
        if batch is None:
            raise Conflict(f"replay {id} is over: {self.get(id).status}")
        return batch

    def get(self, id: UUID) -> ReplayBatch:
        return self.dispatcher.get(id)

    def show(self, id: UUID) -> ReplayDetail:
        return ReplayDetail(self.get(id), self.store.items(id, MOST_SHOWN))

    def page(self, cursor: str | None = None, limit: int = 50, *, live: bool = False) -> ReplayPage:
        """Newest first; `live`: only those that are not over."""
        limit = request.whole("limit", limit, 1, 500)
        found = list(self.store.page(*request.read_cursor(cursor), limit + 1, live=live))
        more = request.cursor(found[limit - 1].created_at, found[limit - 1].id) if len(found) > limit else None
        return ReplayPage(found[:limit], more)

    def replay_one(self, id: UUID, actor: Actor, reason: str) -> bool:
        """False when it is not there, or neither failed nor discarded."""
        return id in self.replay_many([id], actor, reason).replayed

    def replay_many(self, ids: Sequence[UUID], actor: Actor, reason: str) -> ReplayResult:
        """A batch of these, 500 at most, dispatched when this returns."""
        wanted = tuple(dict.fromkeys(ids))
        if not 1 <= len(wanted) <= MOST_IDS:
            raise BadRequest([("ids", f"{len(wanted)} ids given, 1 to {MOST_IDS} are possible")])
        try:
            created = self.create(ReplayRequest(actor=actor, reason=reason, filter=EventFilter(ids=wanted)))
        except NothingMatches:
            return ReplayResult((), dict.fromkeys(wanted, "not_found"))
        self.dispatch(created)
        rows = self.store.items(created.batch.id, MOST_IDS)
        skipped = {row["event_id"]: row["skip_reason"] for row in rows if row["state"] == "skipped"}
        return ReplayResult([id for id in wanted if id not in skipped], skipped)


def limit_of(asked: EventFilter, limit: int | None, pinned: Sequence[UUID] = ()) -> int:
    """The hard limit that the statement gets."""
    if pinned:
        return request.whole("limit", len(pinned) if limit is None else limit, 1, MOST_ROWS)
    if asked.ids:
        return request.whole("limit", len(asked.ids) if limit is None else limit, 1, MOST_IDS)
    return request.whole("limit", DEFAULT_LIMIT if limit is None else limit, 1, MOST_ROWS)


def _check_same(batch: ReplayBatch, asked: ReplayRequest) -> None:
    before = (batch.requested_by, batch.requested_reason, batch.filter)
    if before != (asked.actor.name.strip(), asked.reason.strip(), given(asked.filter)):
        raise Conflict(f"this client id was used for another replay before: {batch.id}")
