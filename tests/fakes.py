"""Owns a small queue in memory that keeps the store's rules, for tests that need no database. The contract suite of the
event store runs on it and on PostgreSQL alike, so that it cannot drift away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from outbox.errors import DocumentsUnavailable
from outbox.policy.document import BATCH_BYTES
from outbox.policy.drift import Key
from outbox.policy.entity_type import EntityType
from outbox.policy.event import ORDER, Event
from outbox.policy.places import NotedPlace
from outbox.policy.settle import Done, Failed, Released, RetryLater, Settlement
from outbox.ports import Claimed, ClaimOrder, Document, GivenBack, Named, NewerDelete, Reclaim, Settled
from outbox.store.events import inline_bytes
from tests.fixtures.events import BODY, an_event

MOST_ABANDONED = 6


@dataclass
class FakeRow:
    """What a test reads. `payload` is the text that was written."""

    event: Event
    payload: bytes | None
    status: str = "pending"
    due_in: float | None = None
    token: UUID | None = None
    error_reason: str | None = None
    dead_reason: str | None = None

    @property
    def attempts(self) -> int:
        return self.event.attempts

    @property
    def abandoned_count(self) -> int:
        return self.event.abandoned_count

    @property
    def op(self) -> str:
        return self.event.op


@dataclass
class MemoryQueue:
    """The table and the leases."""

    rows: dict[UUID, FakeRow] = field(default_factory=dict)
    leases: dict[UUID, list[UUID]] = field(default_factory=dict)
    last_version: int = 0

    def produce(self, entity_id: str = "1", op: str = "upsert", payload: bytes | None = BODY, **values: object) -> UUID:
        seq = len(self.rows) + 1
        payload = payload if op == "upsert" else None
        event = an_event(
            **{"seq": seq, "entity_id": entity_id, "op": op, "payload": payload, "attempts": 0, **values}  # type: ignore[arg-type]
        )
        self.rows[event.id] = FakeRow(event, payload)
        return event.id

    def set(self, id: UUID, **values: Any) -> None:
        self.rows[id].event = self.rows[id].event._replace(**values)

    def take_back(self, token: UUID, *, dead: bool) -> int:
        taken = [self.rows[id] for id in self.leases.pop(token, []) if self._held(id, token)]
        for row in taken:
            abandoned = row.event.abandoned_count + int(dead)
            row.event = row.event._replace(abandoned_count=abandoned)
            row.status = "failed" if abandoned >= MOST_ABANDONED else "pending"
            if row.status == "failed":
                row.error_reason = row.dead_reason = "crash_suspect"
        return len(taken)

    def _held(self, id: UUID, token: UUID) -> bool:
        row = self.rows[id]
        return row.token == token and row.status == "processing"


@dataclass
class MemoryEvents:
    """One worker's view of the queue. What is due later is not due before the test says so (`due_in` None or 0)."""

    has_all_events = True
    queue: MemoryQueue = field(default_factory=MemoryQueue)
    lost_replies: int = 0  # so many settles are applied and answered by an exception
    lost_reply: Exception | None = None

    def claim(self, order: ClaimOrder) -> Claimed:
        pending = [row for row in self.queue.rows.values() if row.status == "pending" and not row.due_in]
        if order.entity_type is not None:
            pending = [row for row in pending if row.event.entity_type == order.entity_type]
        if order.suspects:
            most = order.suspects if order.suspects < 3 else 10**9
            picked = [row for row in pending if order.suspects <= row.event.abandoned_count <= most]
        else:
            picked = [row for row in pending if not row.event.abandoned_count and row.event.seq >= order.floor]
        taken = [self._take(row, order) for row in picked[: order.limit]]
        if taken:
            self.queue.leases[order.token] = [event.id for event in taken]
        return Claimed(order.token, taken, order)

    def claim_within_quota(self, order: ClaimOrder) -> Claimed:
        return self.claim(order)

    def _take(self, row: FakeRow, order: ClaimOrder) -> Event:
        large = row.payload is not None and len(row.payload) >= inline_bytes(BATCH_BYTES, order.limit)
        row.event = row.event._replace(
            attempts=row.event.attempts + 1,
            retried=row.due_in is not None or row.token is not None or bool(order.suspects),
            payload=None if large else row.payload,
            payload_bytes=None if row.payload is None else len(row.payload),
        )
        row.status, row.due_in, row.token = "processing", None, order.token
        return row.event

    def settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None = None,
        *,
        part: bool = False,
    ) -> Settled:
        mine = set(self.queue.leases.pop(token, ()))
        if part and (rest := mine - {id for id, _ in settlements}):
            self.queue.leases[token] = list(rest)
        kept = {id for id, _ in settlements if id in mine and self.queue._held(id, token)}
        for id, settlement in settlements:
            if id in kept:
                self._apply(self.queue.rows[id], settlement)
        if self.lost_replies:
            self.lost_replies -= 1
            raise self.lost_reply or AssertionError("no reply")
        lost = [id for id, _ in settlements if id not in kept and self._is_lost(id, token)]
        return Settled(len(settlements) - len(lost), lost)

    def _is_lost(self, id: UUID, token: UUID) -> bool:
        row = self.queue.rows.get(id)
        if row is None or row.token != token:
            return True
        return row.status == "pending" and row.due_in is None

    def _apply(self, row: FakeRow, settlement: Settlement) -> None:
        row.error_reason = row.dead_reason = None
        match settlement:
            case Done():
                row.status = "done"
            case RetryLater(delay_seconds=delay, failure=failure):
                row.status, row.due_in, row.error_reason = "pending", delay, failure.reason
            case Failed(failure=failure, dead_reason=dead_reason):
                row.status, row.error_reason, row.dead_reason = "failed", failure.reason, dead_reason
            case Released(delay_seconds=delay, failure=released):
                row.status, row.due_in = "pending", delay
                row.error_reason = released.reason if released else None
                row.event = row.event._replace(attempts=max(row.event.attempts - 1, 0))

    def renew(self, token: UUID) -> bool:
        return token in self.queue.leases

    def abandon(self, token: UUID, ids: Sequence[UUID], error: str) -> Reclaim:
        taken = self.queue.take_back(token, dead=True)
        return Reclaim(taken, taken, 0)

    def release(self, token: UUID) -> GivenBack:
        held = [self.queue.rows[id] for id in self.queue.leases.pop(token, []) if self.queue._held(id, token)]
        for row in held:
            row.status, row.event = "pending", row.event._replace(attempts=max(row.event.attempts - 1, 0))
        return GivenBack(len(held), 0)

    def unanswered(self, token: UUID) -> None:
        """Its lease ends by itself."""

    def payloads(self, ids: Sequence[UUID]) -> Mapping[UUID, bytes]:
        found = {id: self.queue.rows[id].payload for id in ids if id in self.queue.rows}
        return {id: payload for id, payload in found.items() if payload is not None}

    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        gone = {(r.event.entity_type, r.event.entity_id) for r in self.queue.rows.values() if r.op == "delete"}
        return {event.id for event in events if (event.entity_type, event.entity_id) in gone}

    def lately_done(self, types: Sequence[str], most: int) -> Sequence[Named]:
        done = [r.event for r in self.queue.rows.values() if r.status == "done" and r.op != "delete"]
        return [event for kind in types for event in [e for e in done if e.entity_type == kind][-most:]]

    def last_version(self) -> int:
        return self.queue.last_version

    def raise_version(self, seen: int) -> int | None:
        was = self.queue.last_version
        self.queue.last_version = max(was, seen)
        return was if was < seen else None

    def newer_deletes(self, token: UUID, ids: Sequence[UUID]) -> Mapping[UUID, NewerDelete]:
        sent = ("done", "processing")
        deletes = [r.event for r in self.queue.rows.values() if r.status in sent and r.op == "delete"]
        found: dict[UUID, NewerDelete] = {}
        for event in (self.queue.rows[id].event for id in ids):
            same = [d for d in deletes if _document(d) == _document(event) and ORDER(d) > ORDER(event)]
            if same and event.op == "upsert":
                newest = max(same, key=ORDER)
                found[event.id] = NewerDelete(newest.event_version, newest.routing)
        return found


def _document(event: Event) -> tuple[str, str, str | None]:
    return (event.entity_type, event.entity_id, event.routing)


@dataclass
class MemoryTypes:
    """What is declared, in memory."""

    revision: int = 1
    known: dict[str, EntityType] = field(default_factory=dict)

    def read(self, types: Sequence[str]) -> tuple[int, Mapping[str, EntityType]]:
        return self.revision, {kind: self.known[kind] for kind in types if kind in self.known}

    def declare(self, types: Mapping[str, EntityType], by: str) -> None:
        self.known = {**types, **self.known}

    def take_back(self, types: Sequence[str], by: str) -> None:
        self.known = {kind: about for kind, about in self.known.items() if kind not in types}
        self.revision += 1


@dataclass
class MemoryPlaces:
    rows: dict[tuple[Key, bool, str], NotedPlace] = field(default_factory=dict)
    cleared: list[NotedPlace] = field(default_factory=list)

    def note(self, places: Sequence[NotedPlace]) -> None:
        for place in places:
            known = self.rows.get(place[:3])
            self.rows[place[:3]] = place if known is None else place._replace(drawn=max(known.drawn, place.drawn))

    def of(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[NotedPlace]]:
        return {key: [place for place in self.rows.values() if place.key == key] for key in keys}

    def clear(self, places: Sequence[NotedPlace]) -> None:
        self.cleared += places


class NoView:
    """A database without a view of documents."""

    def exists(self) -> bool:
        return False

    def types_in_view(self, types: Sequence[str]) -> set[str]:
        raise DocumentsUnavailable("there is none")

    def draw(self) -> int:
        raise AssertionError("nothing is looked up without a view")

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        raise DocumentsUnavailable("there is none")
