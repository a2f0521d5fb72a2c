"""Replays: what a person does to failed events. Creates, dispatches, follows, shows and cancels them.

The creator dispatches, so that a replay works where no daemon runs. If it dies, a daemon goes on (`daemon/chores`); a
daemon also counts and logs what was done here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from outbox.errors import Conflict, DependencyDown, NotFound, OutboxError
from outbox.policy import inputs
from outbox.policy.audit import Actor
from outbox.policy.inputs import MOST_IDS, BadRequest, EventFilter, NothingMatches, given
from outbox.policy.redact import cut
from outbox.policy.replay import (
    DEFAULT_LIMIT,
    DEFAULT_RATE,
    LEASE_SECONDS,
    MOST_ROWS,
    Dispatched,
    ReplayBatch,
    ReplayLease,
    ReplayPace,
    step_rows,
)
from outbox.policy.webhook import bad_url, is_allowed

if TYPE_CHECKING:
    from outbox.store.replays import PostgresReplays

MOST_SHOWN: Final = 500
CHECK_SECONDS: Final = 0.25
AWAY_WAITS: Final = (0.2, 1.0, 3.0)  # a short outage is waited for; after a longer one a daemon goes on

T = TypeVar("T")
Row = Mapping[str, Any]
Tell = Callable[[Dispatched], None]


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
    lease: ReplayLease | None


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
    store: PostgresReplays
    allowed_hosts: Sequence[str] = ()
    max_polls: int = 20
    rows_a_step: int = 500
    clock: Callable[[], float] = time.monotonic

    # Creating

    def create(self, asked: ReplayRequest) -> Created:
        """Pins the rows; nothing moves yet. Asked again with the same client id, it finds what it made before."""
        about, limit = self._about(asked)
        lease = ReplayLease(uuid4(), uuid4())
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
        client_id = asked.client_id and inputs.line("client_id", asked.client_id, 200)
        about = {
            "client_id": client_id or str(uuid4()),
            "by": inputs.line("by", asked.actor.name, inputs.LONGEST_NAME),
            "reason": inputs.reason(asked.reason),
            "role": asked.actor.role,
            "source": asked.actor.source,
            "rate": inputs.rate(asked.rate, DEFAULT_RATE),
            "webhook_url": asked.webhook_url,
        }
        return about, limit_of(asked.filter, asked.limit, asked.pinned)

    def _check_webhook(self, url: str) -> None:
        """A replay's own address must be one that the installation allows: any operator can name one."""
        wrong = bad_url(url, self.allowed_hosts)
        if wrong is None and not is_allowed(urlsplit(url).hostname or "", self.allowed_hosts):
            wrong = "its host is not in OUTBOX_WEBHOOK_ALLOWED_HOSTS"
        if wrong is not None:
            raise BadRequest([("webhook_url", wrong)])

    # Dispatching

    def dispatch(
        self, created: Created, tell: Tell = lambda _: None, stop: threading.Event | None = None
    ) -> ReplayBatch:
        """Moves the pinned rows at the batch's rate, to the end, unless someone cancels or `stop` is set."""
        batch, lease = created.batch, created.lease
        if lease is not None and patiently(lambda: self.store.begin(lease)):
            try:
                self._dispatch(batch, lease, tell, stop or threading.Event())
            except DependencyDown:
                raise
            except Exception as error:
                detail = first_line(error)
                self.store.fail(lease, "unknown", detail)
                raise OutboxError(f"replay {batch.id} failed: {detail}") from error
        return self.get(batch.id)

    def _dispatch(self, batch: ReplayBatch, lease: ReplayLease, tell: Tell, stop: threading.Event) -> None:
        rate = batch.rate or DEFAULT_RATE
        pace, rows = ReplayPace(rate), step_rows(rate, self.rows_a_step)
        while self._wait_for(pace, lease, stop):
            step = patiently(lambda: self.store.dispatch(lease, rows))
            if step is None:
                return
            pace.moved(step.replayed + step.skipped, self.clock())
            tell(step)
            if not step.left:
                self.store.finish_dispatch(lease)
                return
        self.store.let_go(lease)

    def _wait_for(self, pace: ReplayPace, lease: ReplayLease, stop: threading.Event) -> bool:
        """False when stopped. A slow rate renews the lease meanwhile."""
        while (wait := pace.wait_seconds(self.clock())) > 0 and not stop.is_set():
            stop.wait(min(wait, LEASE_SECONDS / 3))
            if wait > LEASE_SECONDS / 3:
                self.store.renew(lease)
        return not stop.is_set()

    # Following

    def wait(self, id: UUID, tell: Callable[[ReplayBatch], None] = lambda _: None) -> ReplayBatch:
        """Makes the same checks as the daemons, and shares them, until the batch is over."""
        while True:
            with suppress(DependencyDown):  # a check that fails is never a failed batch
                batch = self.follow(id)
                tell(batch)
                if batch.is_over:
                    return batch
            time.sleep(CHECK_SECONDS)

    def follow(self, id: UUID) -> ReplayBatch:
        """One check, if it is due, and the settling, if nothing is open."""
        for lease in self.store.take_checks(1, id):
            self.store.check(lease, self.max_polls)
        for lease in self.store.take_settles(1, id):
            self.store.settle(lease)
        return self.get(id)

    def cancel(self, id: UUID, actor: Actor, reason: str) -> ReplayBatch:
        """What moved stays moved; a batch that is over is a conflict."""
        actor = inputs.actor(actor.name, actor.source, actor.role)
        batch = self.store.cancel(id, actor, inputs.reason(reason))
        if batch is None:
            raise Conflict(f"replay {id} is over: {self.get(id).status}")
        return batch

    # Showing

    def get(self, id: UUID) -> ReplayBatch:
        batch = self.store.get(id)
        if batch is None:
            raise NotFound(f"replay {id}")
        return batch

    def show(self, id: UUID) -> ReplayDetail:
        return ReplayDetail(self.get(id), self.store.items(id, MOST_SHOWN))

    def page(self, cursor: str | None = None, limit: int = 50, *, live: bool = False) -> ReplayPage:
        """Newest first; `live`: only those that are not over."""
        limit = inputs.whole("limit", limit, 1, 500)
        found = list(self.store.page(*inputs.read_cursor(cursor), limit + 1, live=live))
        more = inputs.cursor(found[limit - 1].created_at, found[limit - 1].id) if len(found) > limit else None
        return ReplayPage(found[:limit], more)

    # For programs

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
        return inputs.whole("limit", len(pinned) if limit is None else limit, 1, MOST_ROWS)
    if asked.ids:
        return inputs.whole("limit", len(asked.ids) if limit is None else limit, 1, MOST_IDS)
    return inputs.whole("limit", DEFAULT_LIMIT if limit is None else limit, 1, MOST_ROWS)


def _check_same(batch: ReplayBatch, asked: ReplayRequest) -> None:
    before = (batch.requested_by, batch.requested_reason, batch.filter)
    if before != (asked.actor.name.strip(), asked.reason.strip(), given(asked.filter)):
        raise Conflict(f"this client id was used for another replay before: {batch.id}")


def patiently(step: Callable[[], T]) -> T:
    """A step that is safe to repeat: after a short outage, and when only the reply to its commit was lost."""
    for wait in AWAY_WAITS:
        try:
            return step()
        except DependencyDown:
            time.sleep(wait)
    return step()


def first_line(error: Exception) -> str:
    """PostgreSQL's further lines quote the row, and with it the payload."""
    return cut(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", 500)
