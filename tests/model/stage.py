"""Owns the stage of the model: batches that stop before every step, a wire that delays, time that is moved.

The parts on it are the product's own: projector, judge, leases, claimer, reclaimer, and on real PostgreSQL the store
and the view of documents. A batch stops before it draws a version, before it reads, in the middle of its read (the
snapshot is taken, the rows are not read yet), before it sends and before it settles.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg

from outbox.daemon.reclaimer import Reclaimer
from outbox.errors import DatabaseDown
from outbox.facts import Fact, LeaseLost
from outbox.policy.backoff import Backoff
from outbox.policy.document import BATCH_BYTES
from outbox.policy.outcome import Code, Failure, Outcome, Reason
from outbox.policy.settle import Released, RetryPolicy, Settlement
from outbox.ports import BulkAction, Claimed, Document, Named, Settled, WriteReport
from outbox.store.documents import ViewDocuments
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import PostgresEvents
from outbox.store.lookup_in_parts import LookupLimits
from outbox.store.places import PostgresPlaces
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink
from tests.fixtures.waiting import eventually

LEASE_SECONDS = 60.0
GC_DELETES_SECONDS = 60.0
LATEST_SECONDS = 30.0  # the request's deadline: what is on the wire for longer never arrives
MAX_ATTEMPTS = 3
PATIENT = LookupLimits(whole_ms=600_000)  # a read that is held up does not end by itself
REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "refused", Code.PAYLOAD_INVALID, "bad")
LOST = Failure(Reason.TIMEOUT, "no answer", whole=True)
AWAY = Failure(Reason.CONNECT, "nobody there", whole=True)


class Crash(BaseException):
    """kill -9: nothing of the process runs after it."""


class Index(MemorySink):
    """Elasticsearch's rules, tombstones that may be forgotten after a minute, and a read of every version."""

    def __init__(self, clock: Time) -> None:
        super().__init__()
        self.clock = clock
        self.fixed = False
        self.deleted_at: dict[tuple[str, str], float] = {}
        self.refuse = self._refusal

    def _refusal(self, action: BulkAction) -> Failure | None:
        return REFUSED if action.body is not None and b"bad" in action.body and not self.fixed else None

    def apply(self, actions: Sequence[BulkAction]) -> list[Outcome]:
        outcomes = []
        for action in actions:
            key, before = (action.index, action.id), self.documents.get((action.index, action.id))
            outcomes.append(self._one(action))
            after = self.documents.get(key)
            if before is not None and after is not None:
                assert after[0] >= before[0], "I5: a document's version never falls while it is there"
            if key in self.tombstones:
                self.deleted_at[key] = self.clock.now
        return outcomes

    def forget_old_deletes(self) -> None:
        for key, at in list(self.deleted_at.items()):
            if self.clock.now - at > GC_DELETES_SECONDS:
                self.tombstones.pop(key, None)
                del self.deleted_at[key]


@dataclass
class Parked:
    """Where a batch stands: before `draw`, `read`, `write` or `settle`, in the middle of its read (`reading`), or at
    its end (`done`, `raised`)."""

    where: str
    what: Any = None
    since: float = 0.0


class Run:
    """One batch in a thread that only moves when the model lets it: the model stays single-threaded."""

    def __init__(self, worker: "Worker", claimed: Claimed) -> None:
        self.worker = worker
        self.claimed = claimed
        self.crashed = False
        self.zombie = False  # it has written past what the model allows for: it must live until it has read again
        self.drawn_at: float | None = None
        self._orders: queue.Queue[Any] = queue.Queue()
        self._places: queue.Queue[Parked] = queue.Queue()
        self.at = Parked("start")
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.run_of_batch = self  # type: ignore[attr-defined]
        self._thread.start()
        self._arrive()

    def _main(self) -> None:
        try:
            report = self.worker.parts.projector.project(self.claimed, 0)
            self._places.put(Parked("done", report))
        except BaseException as error:
            self._places.put(Parked("raised", error))

    def park(self, where: str, what: Any) -> Any:
        """Called in the batch's own thread: wait for the model's word."""
        self._places.put(Parked(where, what))
        order = self._orders.get(timeout=60)
        if isinstance(order, BaseException):
            raise order
        return order

    def go(self, order: Any) -> Parked:
        self._orders.put(order)
        return self._arrive()

    def hold_up(self, hold: Callable[[], None], is_held: Callable[[], bool]) -> None:
        """Let it read, and stop it in the middle. One that finds nothing to read goes on to its next place."""
        hold()
        self._orders.put("read")
        eventually(lambda: is_held() or not self._places.empty(), every=0.001, what="a read that is held up")
        if self._places.empty():
            self.at = Parked("reading", since=self.worker.clock.now)
        else:
            self.let_go()

    def let_go(self) -> Parked:
        self.worker.let_read()
        return self._arrive()

    def _arrive(self) -> Parked:
        self.at = self._places.get(timeout=60)
        self.at.since = self.worker.clock.now
        if self.over:
            self._thread.join(10)
            raised = self.at.what
            if self.at.where == "raised" and not isinstance(raised, Crash | DatabaseDown):
                raise raised
        return self.at

    @property
    def over(self) -> bool:
        return self.at.where in ("done", "raised")

    @property
    def unsent(self) -> bool:
        """It stands before its settle, which would give every event back as it came."""
        released = Released("not_sent")
        return self.at.where == "settle" and all(settlement == released for _, settlement in self.at.what)

    def kill(self) -> None:
        self.crashed = True
        if self.at.where == "reading":
            self.let_go()
        while not self.over:
            self.go(Crash())


def this_run() -> Run:
    run: Run = threading.current_thread().run_of_batch  # type: ignore[attr-defined]
    return run


class StepSink:
    """Stops before every request; what the model answers is what the batch sees."""

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        report: WriteReport = this_run().park("write", list(actions))
        return report

    def probe(self, target: str) -> Failure | None:
        return None


class StepStore:
    """The real store, except that a settle stops first, and may lose its reply or not arrive at all."""

    def __init__(self, real: PostgresEvents) -> None:
        self._real = real

    def settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None = None,
        *,
        part: bool = False,
    ) -> Settled:
        order = this_run().park("settle", settlements)
        if order == "away":
            raise DatabaseDown("nobody there")
        settled = self._real.settle(token, settlements, drawn, part=part)
        if order == "lose the reply":
            raise DatabaseDown("the connection broke after the commit")
        this_run().worker.settled.append(settled)
        return settled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class StepDocuments:
    """The real view, except that a batch stops before its draw and before its read."""

    def __init__(self, real: ViewDocuments) -> None:
        self._real = real

    def draw(self) -> int:
        this_run().park("draw", None)
        this_run().drawn_at = this_run().worker.clock.now
        return self._real.draw()

    def load(self, events: Sequence[Named], *, whole: bool = False) -> Mapping[UUID, Document]:
        this_run().park("read", None)
        return self._real.load(events, whole=whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@dataclass
class Worker:
    """A slot for a process; `parts` is the process that runs in it now, if one does."""

    name: str
    queue: EventTable
    clock: Time
    facts: list[Fact] = field(default_factory=list)
    parts: InProcess = None  # type: ignore[assignment]
    start_id: UUID = field(default_factory=uuid4)
    batch_size: int = 4
    alive: bool = False
    stopped: bool = False  # SIGSTOP: neither works nor beats
    run: Run | None = None
    settled: list[Settled] = field(default_factory=list)

    def start(self) -> None:
        self.start_id = uuid4()
        self._enrol()
        store: Any = StepStore(self.queue.store(self.name, LEASE_SECONDS, self.start_id))
        retry = RetryPolicy(MAX_ATTEMPTS, Backoff(1.0, 4.0))
        pool = self.queue.pool(f"model {self.name}")
        documents: Any = StepDocuments(
            ViewDocuments(pool, "search_documents", batch_bytes=BATCH_BYTES, clock=self.clock, limits=PATIENT)
        )
        parts = Parts(store, StepSink(), documents, retry, self.clock, lease_seconds=LEASE_SECONDS)
        parts.batch_size = self.batch_size
        parts.types, parts.places = PostgresEntityTypes(pool), PostgresPlaces(pool)
        self.parts = InProcess(parts)
        self.alive, self.stopped, self.run = True, False, None

    def _enrol(self) -> None:
        """A later start takes the id over, as a restarted process does on its own host."""
        about = {"host": "far", "pid": 1, "version": "1", "heartbeat_seconds": 20.0, "entity_types": []}
        register = self.queue.worker(self.name, self.start_id)
        holder = register.holder()
        assert register.register(about, holder.start_id if holder else None)

    def beat(self) -> None:
        if self.alive and not self.stopped:
            self.queue.worker(self.name, self.start_id).beat("running")
            self.parts.leases.beat()

    def read_slowly(self) -> None:
        assert self.run is not None
        number = int(self.name[1:])
        waits = f"locktype = 'advisory' and classid = 19 and objid = {number} and objsubid = 2 and not granted"
        self.run.hold_up(
            lambda: self.queue.value("select pg_advisory_lock(19, %s)", number),
            lambda: bool(self.queue.value(f"select count(*) from pg_locks where {waits}")),
        )

    def let_read(self) -> None:
        self.queue.value("select pg_advisory_unlock(19, %s)", int(self.name[1:]))

    def crash(self) -> None:
        if self.run is not None:
            self.run.kill()
        self.keep_facts()
        self.alive, self.run = False, None

    def end_batch(self) -> None:
        assert self.run is not None
        if self.run.over:
            self.run = None
            self.keep_facts()

    def keep_facts(self) -> None:
        self.facts += self.parts.facts
        self.parts.facts.clear()

    @property
    def free(self) -> bool:
        return self.alive and not self.stopped and self.run is None

    @property
    def lost_rows(self) -> int:
        return sum(fact.count for fact in self.facts if isinstance(fact, LeaseLost))

    def at(self, *places: str) -> bool:
        return self.alive and not self.stopped and self.run is not None and self.run.at.where in places


TIMES = {
    "search_outbox_leases": ("lease_until", "started_at"),
    "search_outbox_events": ("lease_until", "next_retry_at", "processing_started_at", "created_at"),
    "search_outbox_workers": ("heartbeat_at",),
}


def move_time(stage_queue: EventTable, seconds: float) -> None:
    """The database's clock cannot be moved, so everything that it is compared with moves back."""
    by = f"interval '{seconds:.3f} seconds'"
    for table, columns in TIMES.items():
        sets = ", ".join(f"{column} = {column} - {by}" for column in columns)
        where = " or ".join(f"{column} is not null" for column in columns)
        stage_queue.connection.execute(f"update {table} set {sets} where {where}".encode())


@dataclass
class Wire:
    """Requests that were sent and have not arrived yet."""

    index: Index
    clock: Time
    waiting: list[tuple[float, list[BulkAction]]] = field(default_factory=list)

    def delay(self, actions: list[BulkAction]) -> None:
        self.waiting.append((self.clock.now, actions))

    def arrive(self, place: int) -> None:
        _, actions = self.waiting.pop(place % len(self.waiting))
        self.index.apply(actions)

    def drop_old(self) -> None:
        self.waiting = [(at, actions) for at, actions in self.waiting if self.clock.now - at <= LATEST_SECONDS]


def a_reclaimer(stage_queue: EventTable, clock: Time, facts: Callable[[Fact], None]) -> Reclaimer:
    """One that has been connected for long, so that silence counts as evidence."""
    reclaims = stage_queue.reclaims()
    reclaimer = Reclaimer(reclaims.step, reclaims.sweep, facts, clock, 5.0, 20.0)
    reclaimer._connected_since = clock.now - 10_000
    return reclaimer


LOG = """
create table if not exists seen
    (n bigint generated always as identity, id uuid, was text, became text, attempts int, reason text);
create or replace function note_change() returns trigger language plpgsql as $$
begin
    if old.status is distinct from new.status then
        insert into seen (id, was, became, attempts, reason)
        values (new.id, old.status, new.status, new.attempts, new.dead_reason);
    end if;
    return null;
end $$;
create or replace trigger note_change after update on search_outbox_events for each row execute function note_change();
"""
# Posts are kept by refreshes. Two transactions may add a parent's row at the same time, so the view takes all of them.
POSTS = """
create table parent (id text, title int not null);
create table child (id bigint generated always as identity, parent_id text not null);
create function held_up() returns int language plpgsql as $$
begin
    if current_setting('application_name') like 'model w%' then
        perform pg_advisory_xact_lock_shared(19, right(current_setting('application_name'), 1)::int);
    end if;
    return 0;
end $$;
create view search_documents as
    select 'post'::text as entity_type, p.id as entity_id,
           jsonb_build_object('title', held_up() + max(p.title), 'children',
                              (select jsonb_agg(c.id order by c.id) from child c where c.parent_id = p.id)) as document
      from parent p group by p.id;
"""
EMPTY = (
    "truncate search_outbox_events, search_outbox_leases, search_outbox_attempts, search_outbox_workers, seen,"
    " search_outbox_entity_types, search_outbox_places,"
    " parent, child restart identity"
)
# Rows that another open transaction has locked are left alone: the model has one thread.
CHANGES: Mapping[str, LiteralString] = {
    "make": "insert into parent select %(id)s, 0 where not exists (select from parent where id = %(id)s)",
    "add a child": "insert into child (parent_id) values (%(id)s)",
    "remove a child": "delete from child where id = any (array("
    "select id from child where parent_id = %(id)s order by id limit 1 for update skip locked))",
    "change": "update parent set title = title + 1 where ctid = any (array("
    "select ctid from parent where id = %(id)s for update skip locked))",
    "delete": "delete from parent where ctid = any (array("
    "select ctid from parent where id = %(id)s for update skip locked))",
}


@dataclass
class Writer:
    """One transaction at a time over posts: each change with its event, visible to nobody before the commit."""

    connection: psycopg.Connection[Any]
    written: set[UUID] = field(default_factory=set)

    def change(self, post: str, what: str, op: str) -> None:
        self.connection.execute(CHANGES[what], {"id": post})
        row = self.connection.execute("select outbox_enqueue('post', %s, %s)", [post, op]).fetchone()
        assert row is not None
        self.written.add(row[0])

    def commit(self) -> set[UUID]:
        self.connection.commit()
        written, self.written = self.written, set()
        return written

    def forget(self) -> None:
        self.connection.rollback()
        self.written = set()


@dataclass(frozen=True)
class CommittedEvent:
    """One committed event, as its producer remembers it."""

    id: UUID
    entity: str
    version: int
    op: str
    body: bytes | None
    bad: bool


Ledger = dict[UUID, CommittedEvent]


def entities(ledger: Mapping[UUID, CommittedEvent]) -> dict[str, list[CommittedEvent]]:
    """Each entity's events, oldest version first."""
    found: dict[str, list[CommittedEvent]] = {}
    for entry in sorted(ledger.values(), key=lambda e: e.version):
        found.setdefault(entry.entity, []).append(entry)
    return found
