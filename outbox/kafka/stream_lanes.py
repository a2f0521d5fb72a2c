"""Joins the parts of a daemon that reads Kafka: its lanes beside one table lane, the reader, a heartbeat of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outbox.config import Settings
from outbox.daemon.claiming import Claimer, Kinds, Orders
from outbox.daemon.lane import Lane
from outbox.daemon.lease import Leases, boottime
from outbox.daemon.lifecycle import Loop
from outbox.daemon.projector import Projector
from outbox.facts import Announce
from outbox.kafka.connection import PREFETCH_BYTES
from outbox.kafka.consumer import StreamReader
from outbox.kafka.events import SourceTime, StreamEvents
from outbox.kafka.partitions import Partitions
from outbox.kafka.records import PostgresRecords
from outbox.ports import Clock, Sink
from outbox.store.events import PostgresEvents
from outbox.store.pool import Database

MakeLane = Callable[[int, Claimer, Projector], Lane]


@dataclass(frozen=True, slots=True)
class Streaming:
    """`lanes` come after the table lane. `begin`: what PostgreSQL is asked before the first claim. `tend`: once per
    second, beside what upkeep does."""

    lanes: Sequence[Lane]
    loops: dict[str, Loop]
    begin: Callable[[], None]
    tend: Callable[[], None]
    rewind: Callable[[], None]  # what is not committed is read again


def streaming(
    settings: Settings,
    table: Claimer,
    projector: Projector,
    *,
    sink: Sink,
    may_commit: Callable[[], bool],
    make_lane: MakeLane,
    database: Database,
    events: PostgresEvents,
    announce: Announce,
    clock: Clock,
) -> Streaming:
    """Beside the table's claimer and projector, the same over records. They share the gate, the limits, the brakes and
    the judge: a pause is a pause for both."""
    records = PostgresRecords(database, events, owner=settings.worker.id, group=settings.kafka.group)
    time = SourceTime(records.now, boottime)
    partitions = Partitions(clock, most_bytes=PREFETCH_BYTES, batch_size=settings.batch.size)
    store = StreamEvents(
        partitions,
        records,
        time.now,
        batch_bytes=settings.batch.bytes,
        most_open=settings.kafka.max_open_events,
        routed=settings.kafka.record_form == "router",
        stopped_types=table.gate.types_stopped_by_operator,
    )
    leases = _leases(settings, store, announce)
    over_records = replace(
        projector,
        store=store,
        declarations=replace(projector.declarations, last_version=store.last_version),
        sink=sink,
        leases=leases,
        lookups=replace(projector.lookups, store=store),
        higher=replace(projector.higher, store=store),
    )
    orders = Orders(clock, settings.batch.size)
    claimer = Claimer(store, table.gate, orders, Kinds(), announce, table.limit, boottime)
    lanes = [make_lane(number, claimer, over_records) for number in range(1, settings.worker.concurrency + 1)]
    reader = StreamReader(
        settings.kafka,
        partitions,
        announce,
        clock,
        client=settings.worker.id,
        wall_clock=time.now,
        wake=lambda: _wake(lanes),
        may_commit=may_commit,
        read_before=lambda topic_id: records.topic_before(settings.kafka.topic, topic_id),
    )

    def begin() -> None:
        store.database = records.check()
        time.tend()

    def tend() -> None:
        time.tend()
        store.tend(settings.kafka.topic, clock())

    return Streaming(lanes, {"stream": reader.run, "stream-heartbeat": leases.run}, begin, tend, reader.rewind)


def _wake(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.notice()


def _leases(settings: Settings, store: StreamEvents, announce: Announce) -> Leases:
    """A batch is ours while its partition is; how long it may take is the same as for rows."""
    return Leases(
        store,
        announce,
        boottime,
        lease_seconds=settings.lease.seconds,
        heartbeat_seconds=settings.lease.heartbeat_seconds,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
        name="stream-heartbeat",
    )
