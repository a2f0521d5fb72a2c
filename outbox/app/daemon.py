"""Joins the parts of one daemon. Decides nothing: every choice here comes from the settings."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from outbox import __version__
from outbox.app import naming
from outbox.app.chores import chores
from outbox.app.desk import backlog_of
from outbox.config import Settings
from outbox.daemon.claiming import Claimer, Kinds, Orders, SharedLimit
from outbox.daemon.declarations import Declarations
from outbox.daemon.fanout import Fanouts
from outbox.daemon.gate import EVERYTHING, PauseGate
from outbox.daemon.higher_version import HigherVersions
from outbox.daemon.judge import Judge
from outbox.daemon.lane import Lane, Listener, Underway
from outbox.daemon.lease import Leases, boottime
from outbox.daemon.lifecycle import Lifecycle, Loop
from outbox.daemon.lookups import Lookups
from outbox.daemon.projector import Projector
from outbox.daemon.reclaimer import Reclaimer
from outbox.daemon.second_target import SecondTarget
from outbox.daemon.shutdown import Stop
from outbox.daemon.startup import Enrolment, wait_for_schema
from outbox.daemon.systemd import Notifier, Watchdog
from outbox.daemon.upkeep import CoverageWatch, SequenceWatch, Upkeep, VerificationNews
from outbox.errors import ConfigProblem, ConfigurationError, DatabaseDown
from outbox.facts import Announcer
from outbox.policy.audit import Actor, Source
from outbox.policy.backoff import Backoff, LanePace
from outbox.policy.document import Addressing
from outbox.policy.projection import Projects
from outbox.policy.schema import SchemaState
from outbox.policy.settle import RetryPolicy
from outbox.sink.client import connect as connect_elastic
from outbox.sink.elastic import ElasticSink
from outbox.sink.index_check import TargetCheck
from outbox.store.coverage import PostgresCoverage
from outbox.store.documents import ViewDocuments
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import PostgresEvents, catch_up
from outbox.store.failures import PostgresRollup
from outbox.store.fanouts import PostgresFanouts
from outbox.store.places import PostgresPlaces
from outbox.store.pool import Database, connect
from outbox.store.pooler import ear
from outbox.store.reindex import PostgresMirrors, PostgresVerifications
from outbox.store.schema.state import check_schema, has_by_type
from outbox.store.workers import Reclaims, Workers
from outbox.telemetry import tracing
from outbox.telemetry.backlog import BacklogSampler
from outbox.telemetry.beats import Beats
from outbox.telemetry.health import Health, ReadyRules
from outbox.telemetry.log_lines import LogSubscriber
from outbox.telemetry.log_setup import configure
from outbox.telemetry.metrics import Metrics, new_registry
from outbox.telemetry.rollup import Rollup
from outbox.web.health import HealthState

if TYPE_CHECKING:
    from outbox.kafka.joining import Streaming

clock = time.monotonic
# A lane that comes back from a server gets Python's lock from one that computes after this time, 5 ms by default. Six
# lanes on a topic, of raw `_bulk`, medians of four drains of 100,000 by turns: 0.74 with 0.5 ms, 0.66 with 5.
SWITCH_SECONDS: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Pools:
    """Three small pools, so that claims can starve neither heartbeats nor the watchers."""

    lanes: Database
    heartbeat: Database
    chores: Database

    @classmethod
    def of(cls, settings: Settings) -> Pools:
        def pool(name: str, size: int) -> Database:
            return Database(settings.database.dsn, size=size, application=f"outbox-{name}")

        return cls(pool("lanes", settings.worker.concurrency + 2), pool("heartbeat", 2), pool("chores", 4))

    def open(self) -> None:
        for pool in (self.lanes, self.heartbeat, self.chores):
            pool.open()

    def close(self) -> None:
        for pool in (self.lanes, self.heartbeat, self.chores):
            pool.close()


@dataclass(slots=True)
class Watching:
    """Everything that subscribes to facts."""

    announce: Announcer
    metrics: Metrics
    health: Health
    registry: Any

    @classmethod
    def of(cls, settings: Settings, beats: Beats) -> Watching:
        logger = configure(
            settings.log.format, settings.log.level, settings.projection, settings.worker.id, secrets=settings.secrets()
        )
        logs = LogSubscriber(logger)
        announce = Announcer(on_error=logs.broken_subscriber)
        registry = new_registry()
        metrics = Metrics(settings.projection, registry, settings.known_entity_types, nodes=settings.elastic.urls)
        health = Health(
            ReadyRules(
                settings.health.freshness_seconds,
                settings.health.require_es_ready,
                settings.worker.entity_types,
                settings.worker.exclude_entity_types,
            ),
            beats,
        )
        for handle in (metrics.handle, health.handle, logs.handle):
            announce.subscribe(handle)
        if tracing.is_set_up():
            announce.subscribe(tracing.Tracing(settings.projection).handle)
        return cls(announce, metrics, health, registry)


def project(settings: Settings, shown: HealthState, stop: Stop, *, once: bool, patient: bool) -> bool:
    """Everything after the health pages listen (see launch): True when it drained cleanly."""
    watching = Watching.of(settings, shown.beats)
    shown.complete(watching.registry, watching.health)
    pools = Pools.of(settings)
    pools.open()
    try:
        wait_for_schema(lambda: _schema(settings), watching.announce, stop.event, patient=patient)
        if stop.is_set():
            return True
        worker = _worker(settings, pools, watching, stop, once=once)
        _calm_collector()
        sys.setswitchinterval(SWITCH_SECONDS)
        return worker.run()
    finally:
        pools.close()


def _calm_collector() -> None:
    """A batch makes 2,000 tuples and no cycles: at its default threshold the collector walks them over and over."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _schema(settings: Settings) -> SchemaState:
    """Over a connection of its own: a pool that gets none says only that, and only after its time limit."""
    with connect(settings.database.dsn, application="outbox start") as connection:
        found = check_schema(connection)
    if settings.worker.listen:
        _refuse_deafness(settings)
    return found


def _refuse_deafness(settings: Settings) -> None:
    """An address through which LISTEN would never fire is refused; one that is down is not: polling continues."""
    with suppress(DatabaseDown), ear(settings.database.direct_dsn):
        pass


def _worker(settings: Settings, pools: Pools, watching: Watching, stop: Stop, *, once: bool) -> Lifecycle:
    announce = watching.announce
    start_id = uuid4()
    worker_id = settings.worker.id
    events, beats = (
        PostgresEvents(
            pool,
            owner=worker_id,
            start_id=start_id,
            lease_seconds=settings.lease.seconds,
            batch_bytes=settings.batch.bytes,
        )
        for pool in (pools.lanes, pools.heartbeat)
    )
    register = Workers(pools.heartbeat, worker_id=worker_id, start_id=start_id)
    limits = SharedLimit(settings.batch.size, announce)
    elastic = connect_elastic(settings.elastic, settings.worker.concurrency, announce)
    sink = ElasticSink(elastic, settings.batch.bytes, limits.items, announce)
    mirrors = PostgresMirrors(pools.chores, worker_id=worker_id, start_id=start_id)
    second = SecondTarget(sink, mirrors, announce, boottime)
    probe = _probe(settings, sink)
    gate = PauseGate(announce, clock, probe)
    leases = Leases(
        beats,
        announce,
        boottime,
        lease_seconds=settings.lease.seconds,
        heartbeat_seconds=settings.lease.heartbeat_seconds,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
    )
    kinds = _kinds(settings, events, pools)
    most_bytes = settings.batch.max_document_bytes
    documents = ViewDocuments(pools.lanes, settings.documents, batch_bytes=settings.batch.bytes, most_bytes=most_bytes)
    documents.shape().check_ids()
    declarations = Declarations(PostgresEntityTypes(pools.lanes), documents, events.last_version, worker_id, boottime)
    names = naming(settings)
    judge = Judge(_retry(settings), announce, clock)
    projector = Projector(
        store=events,
        documents=documents,
        declarations=declarations,
        places=PostgresPlaces(pools.lanes),
        sink=second,
        leases=leases,
        addressing=Addressing(names),
        judge=judge,
        lookups=Lookups(events, documents, announce, clock),
        higher=HigherVersions(events, announce),
        fanouts=Fanouts(PostgresFanouts(pools.lanes), judge, announce),
        gate=gate,
        announce=announce,
        portion_bytes=settings.batch.bytes,
        request_deadline_seconds=settings.request_deadline_seconds,
        report_write=limits.report,
        refresh_again=events.refresh_again,
        most_document_bytes=most_bytes,
    )
    orders = Orders(clock, settings.batch.size)
    claimer = Claimer(events, gate, orders, kinds, announce, limits.items, boottime)
    underway = Underway(clock)

    def make_lane(number: int, claimer: Claimer, projector: Projector) -> Lane:
        return Lane(
            number=number,
            claimer=claimer,
            projector=projector,
            gate=gate,
            pace=LanePace(settings.retry.base_backoff_seconds, settings.retry.max_backoff_seconds),
            announce=announce,
            clock=clock,
            poll_seconds=settings.worker.poll_interval_seconds,
            pause_on_outage=settings.retry.outage_policy == "pause",
            underway=underway,
        )

    stream: Streaming | None = None
    if settings.source == "kafka":  # then one lane is enough for the table, which has the exceptions only
        # Late import: the client of Kafka is installed only where it is used.
        from outbox.kafka.joining import streaming  # noqa: PLC0415

        stream = streaming(settings, claimer, projector, second, make_lane, pools.lanes, events, announce, clock)
    lanes = [make_lane(number, claimer, projector) for number in range(1 if stream else settings.worker.concurrency)]
    desk = Workers(pools.chores, worker_id=worker_id, start_id=start_id)

    watches = _watches(settings, pools, announce)

    def tend() -> None:
        second.tend()
        for watch in watches:
            watch.tend()
        if stream is not None:
            stream.tend()

    def let_fail(chosen: frozenset[str]) -> None:
        judge.let_fail(chosen)
        projector.lookups.let_fail(chosen)

    check = TargetCheck(elastic, sink.targets, settings.reclaim.max_processing_seconds)
    upkeep = Upkeep(
        controls=desk.controls,
        version_known=desk.version_known,
        gate=gate,
        let_fail=let_fail,
        ahead=projector.higher.ahead,
        kinds=kinds,
        open_types=_open_types(settings, events),
        targets=settings.elastic.targets,
        probe=probe,
        announce=announce,
        clock=clock,
        warn_of_targets=lambda: check.warn(settings.elastic.targets, announce),
        tend=tend,
    )
    announce.subscribe(upkeep.handle)
    upkeep.obey()
    notifier = Notifier()
    watchdog = Watchdog(notifier, watching.health.alive, lambda: watching.health.readiness().status)

    def on_ready() -> None:
        watching.health.beats.forget("start")
        notifier.ready(f"projecting to {settings.elastic.index}")
        watchdog.start()

    return Lifecycle(
        name=worker_id,
        version=__version__,
        target=", ".join(settings.elastic.targets),
        lanes=[*lanes, *(stream.lanes if stream else ())],
        loops=_loops(settings, pools, watching, upkeep, lanes) | (stream.loops if stream else {}),
        leases=leases,
        enrolment=_enrolment(settings, register, announce, lambda: elastic.shown),
        store=beats,
        stop=stop,
        announce=announce,
        grace_seconds=settings.worker.shutdown_grace_seconds,
        max_runtime_seconds=settings.worker.max_runtime_seconds,
        once=once,
        on_ready=on_ready,
        on_draining=notifier.stopping,
    )


def _enrolment(
    settings: Settings, register: Workers, announce: Announcer, server: Callable[[], str | None]
) -> Enrolment:
    types, others = settings.worker.entity_types, settings.worker.exclude_entity_types
    return Enrolment(
        register=register,
        worker_id=settings.worker.id,
        version=__version__,
        heartbeat_seconds=settings.lease.heartbeat_seconds,
        entity_types=list(types),
        projects=Projects(settings.elastic.index, settings.elastic.index_map, frozenset(types), frozenset(others)),
        announce=announce,
        server=server,
    )


def _watches(
    settings: Settings, pools: Pools, announce: Announcer
) -> tuple[SequenceWatch, CoverageWatch, VerificationNews]:
    """What upkeep checks now and then. The first two are also checked before the first claim."""
    actor = Actor(settings.worker.id, Source.DAEMON)
    sequence = SequenceWatch(lambda: catch_up(pools.chores, actor), announce, clock)
    coverage = PostgresCoverage(pools.chores, settings.documents)
    unattached = CoverageWatch(settings.documents, coverage.forgotten, announce, clock)
    verifications = PostgresVerifications(pools.chores)
    news = VerificationNews(lambda: verifications.last_finished(settings.elastic.targets), announce, clock)
    sequence.tend()
    unattached.tend()
    return sequence, unattached, news


def _retry(settings: Settings) -> RetryPolicy:
    backoff = Backoff(settings.retry.base_backoff_seconds, settings.retry.max_backoff_seconds)
    return RetryPolicy(settings.retry.max_attempts, backoff, settings.retry.outage_policy == "count")


def _probe(settings: Settings, sink: ElasticSink) -> Callable[[str], Any]:
    """A pause of everything is probed at the main target."""
    return lambda target: sink.probe(settings.elastic.index if target == EVERYTHING else target)


def _kinds(settings: Settings, events: PostgresEvents, pools: Pools) -> Kinds:
    """Claims by type need their indexes: without them each would read past every other type's rows."""
    with pools.chores.connection() as connection:
        indexed = has_by_type(connection)
    if settings.claims_by_type and not indexed:
        raise ConfigurationError(
            [
                ConfigProblem(
                    "OUTBOX_ENTITY_TYPES, OUTBOX_KIND_* or ELASTIC_INDEX_MAP",
                    "claims by entity type need two more indexes",
                    "Run `outbox migrate --by-type`.",
                )
            ]
        )
    kinds = Kinds(
        always=settings.claims_by_type,
        indexed=indexed,
        only=frozenset(settings.worker.entity_types),
        never=frozenset(settings.worker.exclude_entity_types),
        limited=_limits(settings),
        index_of=settings.elastic.index_for,
    )
    if kinds.always:
        kinds.open = _open_types(settings, events)()
    return kinds


def _limits(settings: Settings) -> Callable[[str], bool]:
    by_default = settings.kinds.concurrency_default is not None or settings.kinds.rate_default is not None
    named = frozenset(settings.kinds.concurrency) | frozenset(settings.kinds.rate)
    return lambda kind: by_default or kind in named


def _open_types(settings: Settings, events: PostgresEvents) -> Callable[[], list[str]]:
    """The open types, each limited one with its quota written before it is claimed for the first time."""
    limited, written = _limits(settings), set[str]()
    limits = settings.kinds

    def read() -> list[str]:
        found = events.open_types()
        for kind in found:
            if kind not in written and limited(kind):
                most = limits.concurrency.get(kind, limits.concurrency_default)
                events.put_quota(kind, most, limits.rate.get(kind, limits.rate_default))
                written.add(kind)
        return found

    return read


def _loops(settings: Settings, pools: Pools, watching: Watching, upkeep: Upkeep, lanes: list[Lane]) -> dict[str, Loop]:
    reclaims = Reclaims(
        pools.chores,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
        rows_a_step=settings.reclaim.batch_size,
    )
    reclaimer = Reclaimer(
        reclaims.step,
        reclaims.sweep,
        watching.announce,
        clock,
        settings.reclaim.interval_seconds,
        settings.lease.heartbeat_seconds,
    )
    watching.announce.subscribe(reclaimer.handle)
    loops: dict[str, Loop] = {"upkeep": upkeep.run, "reclaimer": reclaimer.run}
    loops |= _telemetry_loops(settings, pools, watching)
    loops |= chores(settings, pools.chores, watching.announce, clock)
    if settings.worker.listen:

        def wake() -> None:
            for lane in lanes:
                lane.notice()

        loops["listen"] = Listener(lambda: ear(settings.database.direct_dsn), wake, watching.announce).run
    return loops


def _telemetry_loops(settings: Settings, pools: Pools, watching: Watching) -> dict[str, Loop]:
    """The sampler has a connection of its own: a slow query must not hold a chore's."""
    backlog = backlog_of(settings)
    # Types left to other daemons are sampled too: /readyz must not take their due rows for this one's debt.
    types = (*settings.known_entity_types, *settings.worker.exclude_entity_types)
    sampler = BacklogSampler(backlog, watching.announce, types)
    rollup = Rollup(PostgresRollup(pools.chores), watching.announce)
    watching.announce.subscribe(rollup.handle)
    return {"sampler": sampler.run, "rollup": rollup.run}
