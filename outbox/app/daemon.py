"""Joins the parts of one daemon. Decides nothing: every choice here comes from the settings."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from outbox import __version__
from outbox.app.chores import chores
from outbox.app.desk import backlog_of
from outbox.config import Settings
from outbox.daemon.brake import Brake
from outbox.daemon.claiming import Claimer, Kinds, Orders, SharedLimit
from outbox.daemon.declarations import Declarations
from outbox.daemon.fanout import Fanouts
from outbox.daemon.gate import EVERYTHING, PauseGate
from outbox.daemon.higher_version import HigherVersions
from outbox.daemon.lane import Lane, Listener, Underway, wake_one
from outbox.daemon.lease import Leases, boottime
from outbox.daemon.lifecycle import Lifecycle, Loop
from outbox.daemon.memory import allowed_bytes, warn_of_limit
from outbox.daemon.projector import Projector
from outbox.daemon.reclaimer import Reclaimer
from outbox.daemon.shutdown import Stop
from outbox.daemon.startup import Enrolment, Step
from outbox.daemon.systemd import Notifier
from outbox.daemon.upkeep import NEWS_SECONDS, SEQUENCE_SECONDS, UNATTACHED_SECONDS, News, Rarely, Upkeep
from outbox.daemon.view_trust import Lookups
from outbox.errors import ConfigProblem, ConfigurationError, DatabaseDown, SchemaMismatch
from outbox.facts import Announcer, SchemaChecked
from outbox.policy.audit import Actor, Source
from outbox.policy.backoff import Backoff, LanePace
from outbox.policy.outcome import Failure
from outbox.policy.projection import Projects
from outbox.policy.settle import Judge, RetryPolicy
from outbox.reindex.second_target import SecondTarget, StreamTarget
from outbox.reindex.tables import PostgresMirrors, PostgresVerifications
from outbox.sink.client import connect as connect_elastic
from outbox.sink.elastic import ElasticSink
from outbox.sink.index_check import TargetCheck
from outbox.store.coverage import PostgresCoverage
from outbox.store.documents import ViewDocuments
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import PostgresEvents, catch_up, catch_up_on
from outbox.store.failures import PostgresRollup
from outbox.store.fanouts import PostgresFanouts
from outbox.store.places import PostgresPlaces
from outbox.store.pool import Database, connect, meet_all
from outbox.store.pooler import ear
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
    from outbox.kafka.stream_lanes import Streaming

clock = time.monotonic
# A lane that comes back from a server gets Python's lock from one that computes after this time, 5 ms by default. Six
# lanes on a topic, of raw `_bulk`, medians of four drains of 100,000 by turns: 0.74 with 0.5 ms, 0.66 with 5.
SWITCH_SECONDS: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Pools:
    """Small pools, so that claims can starve neither heartbeats nor the watchers. `lanes` is for the queue alone, whose
    statements are prepared; what else a lane reads and writes goes by `documents`."""

    lanes: Database
    documents: Database
    heartbeat: Database
    chores: Database

    @classmethod
    def of(cls, settings: Settings, beats: Beats) -> Pools:
        def pool(name: str, size: int, **how: Any) -> Database:
            return Database(
                settings.database.dsn, size=size, application=f"outbox-{name}", around=beats.at_server, **how
            )

        lanes = settings.worker.concurrency
        return cls(
            lanes=pool("lanes", lanes + 1, prepared=settings.database.prepare),
            documents=pool("documents", lanes + 1),
            heartbeat=pool("heartbeat", 2),
            chores=pool("chores", 5),  # one of them for the sampler, which has slow queries
        )

    def __iter__(self) -> Iterator[Database]:
        return iter((self.lanes, self.documents, self.heartbeat, self.chores))

    def open(self) -> None:
        for pool in self:
            pool.open()

    def close(self) -> None:
        for pool in self:
            pool.close()


@dataclass(slots=True)
class Watching:
    announce: Announcer
    health: Health
    registry: Any

    @classmethod
    def of(cls, settings: Settings, beats: Beats) -> Watching:
        shown = (settings.log.format, settings.log.level, settings.projection, settings.worker.id)
        logger = configure(*shown, secrets=settings.secrets(), names=settings.names())
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
        return cls(announce, health, registry)


def project(settings: Settings, shown: HealthState, stop: Stop, *, once: bool, patient: bool) -> bool:
    """Everything after the health pages listen (see launch): True when it drained cleanly."""
    watching = Watching.of(settings, shown.beats)
    shown.complete(watching.registry, watching.health)
    batch, lanes = settings.batch, settings.worker.concurrency
    warn_of_limit(allowed_bytes(), lanes, batch.bytes, batch.max_document_bytes, watching.announce)
    pools = Pools.of(settings, shown.beats)
    try:
        worker = Wiring(settings, pools, watching).lifecycle(stop, once=once, patient=patient)
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


def _reach(settings: Settings, pools: Pools) -> None:
    """First by a connection of its own: a pool that gets none says only that, and only after its time limit."""
    connect(settings.database.dsn, application="outbox start").close()
    meet_all(settings.database.dsn)
    pools.open()


def _refuse_strange(pools: Pools, announce: Announcer) -> None:
    with pools.chores.connection() as connection:
        schema = check_schema(connection)
    announce(SchemaChecked(schema.ok, str(schema)))
    if not schema.ok:
        raise SchemaMismatch(str(schema))


def _refuse_deafness(settings: Settings) -> None:
    """An address through which LISTEN would never fire is refused; one that is down is not: polling continues."""
    if settings.worker.listen:
        with suppress(DatabaseDown), ear(settings.database.direct_dsn):
            pass


class Wiring:
    """The parts of one worker, each joined where it is first asked for. No server is asked: what must be asked before
    the first claim is a step."""

    def __init__(self, settings: Settings, pools: Pools, watching: Watching) -> None:
        self.settings, self.pools, self.watching = settings, pools, watching
        self.announce = watching.announce
        self.start_id = uuid4()
        self.limits = SharedLimit(settings.batch.size, self.announce)
        self.elastic = connect_elastic(settings.elastic, settings.worker.concurrency, self.announce)
        self.sink = ElasticSink(self.elastic, settings.batch.bytes, self.limits.items, self.announce)
        self.events, self.beats = self._events(pools.lanes), self._events(pools.heartbeat)
        self.kinds = _kinds(settings)
        self.brake = Brake(self.announce, clock)
        self.underway = Underway(clock)

    def lifecycle(self, stop: Stop, *, once: bool, patient: bool) -> Lifecycle:
        settings, stream = self.settings, self.stream
        alone = range(1 if stream else settings.worker.concurrency)  # records take the other lanes
        lanes = [self.lane(number, self.claimer, self.projector) for number in alone]
        register = Workers(self.pools.heartbeat, worker_id=settings.worker.id, start_id=self.start_id)
        loops = _loops(settings, self.pools, self.watching, self.upkeep, lanes)
        return Lifecycle(
            name=settings.worker.id,
            version=__version__,
            target=", ".join(settings.elastic.targets),
            lanes=[*lanes, *(stream.lanes if stream else ())],
            loops=loops | (stream.loops if stream else {}),
            leases=self.leases,
            enrolment=_enrolment(settings, register, self.announce, lambda: self.elastic.shown),
            store=self.beats,
            stop=stop,
            announce=self.announce,
            grace_seconds=settings.worker.shutdown_grace_seconds,
            max_runtime_seconds=settings.worker.max_runtime_seconds,
            once=once,
            steps=self.steps(),
            patient=patient,
            on_ready=lambda: self.watching.health.beats.forget("start"),
            on_draining=Notifier().stopping,
        )

    def steps(self) -> list[Step]:
        return [
            lambda: _reach(self.settings, self.pools),
            lambda: _refuse_strange(self.pools, self.announce),
            lambda: _refuse_deafness(self.settings),
            lambda: self.documents.shape().check_ids(),
            lambda: _learn_indexes(self.kinds, self.pools),
            self.watches[0].do,
            self.upkeep.obey,
            *([self.stream.begin] if self.stream else ()),
        ]

    @cached_property
    def projector(self) -> Projector:
        settings, events = self.settings, self.events
        types = PostgresEntityTypes(self.pools.documents)
        return Projector(
            store=events,
            documents=self.documents,
            declarations=Declarations(types, self.documents, events.last_version, settings.worker.id, boottime),
            places=PostgresPlaces(self.pools.documents),
            sink=self.second,
            leases=self.leases,
            naming=settings.naming,
            judge=self.judge,
            lookups=Lookups(events, self.documents, self.announce, clock, self.brake),
            higher=HigherVersions(events, self.announce),
            fanouts=Fanouts(PostgresFanouts(self.pools.documents), self.judge, self.announce),
            gate=self.gate,
            announce=self.announce,
            portion_bytes=settings.batch.bytes,
            request_deadline_seconds=settings.request_deadline_seconds,
            report_write=self.limits.report,
            refresh_again=events.refresh_again,
            most_document_bytes=settings.batch.max_document_bytes,
        )

    @cached_property
    def claimer(self) -> Claimer:
        orders = Orders(clock, self.settings.batch.size)
        return Claimer(self.events, self.gate, orders, self.kinds, self.announce, self.limits.items, boottime)

    def lane(self, number: int, claimer: Claimer, projector: Projector) -> Lane:
        retry = self.settings.retry
        return Lane(
            number=number,
            claimer=claimer,
            projector=projector,
            gate=self.gate,
            pace=LanePace(retry.base_backoff_seconds, retry.max_backoff_seconds),
            announce=self.announce,
            clock=clock,
            poll_seconds=self.settings.worker.poll_interval_seconds,
            pause_on_outage=retry.outage_policy == "pause",
            underway=self.underway,
        )

    @cached_property
    def stream(self) -> Streaming | None:
        """The lanes of records, where they come by Kafka: the table has the exceptions only."""
        if self.settings.source != "kafka":
            return None
        # Late import: the client of Kafka is installed only where it is used.
        from outbox.kafka.stream_lanes import streaming  # noqa: PLC0415

        stream = streaming(
            self.settings,
            self.claimer,
            self.projector,
            sink=StreamTarget(self.second),
            may_commit=self.second.is_heard,
            make_lane=self.lane,
            database=self.pools.documents,
            events=self.events,
            announce=self.announce,
            clock=clock,
        )
        self.second.on_change_after_silence = stream.rewind
        return stream

    @cached_property
    def upkeep(self) -> Upkeep:
        settings = self.settings
        desk = Workers(self.pools.chores, worker_id=settings.worker.id, start_id=self.start_id)
        check = TargetCheck(self.elastic, self.sink.targets, settings.reclaim.max_processing_seconds)
        upkeep = Upkeep(
            controls=desk.controls,
            version_known=desk.version_known,
            gate=self.gate,
            let_fail=self.brake.let_fail,
            ahead=self.projector.higher.ahead,
            kinds=self.kinds,
            open_types=_open_types(settings, self.events),
            targets=settings.elastic.targets,
            probe=self._probe,
            announce=self.announce,
            clock=clock,
            warn_of_targets=lambda: check.warn(settings.elastic.targets, self.announce),
            tend=self._tend,
        )
        self.announce.subscribe(upkeep.handle)
        return upkeep

    @cached_property
    def second(self) -> SecondTarget:
        mirrors = PostgresMirrors(self.pools.chores, worker_id=self.settings.worker.id, start_id=self.start_id)
        return SecondTarget(self.sink, mirrors, self.announce, boottime)

    @cached_property
    def documents(self) -> ViewDocuments:
        batch = self.settings.batch
        return ViewDocuments(
            self.pools.documents, self.settings.documents, batch_bytes=batch.bytes, most_bytes=batch.max_document_bytes
        )

    @cached_property
    def leases(self) -> Leases:
        settings = self.settings
        return Leases(
            self.beats,
            self.announce,
            boottime,
            lease_seconds=settings.lease.seconds,
            heartbeat_seconds=settings.lease.heartbeat_seconds,
            max_processing_seconds=settings.reclaim.max_processing_seconds,
        )

    @cached_property
    def judge(self) -> Judge:
        retry = self.settings.retry
        backoff = Backoff(retry.base_backoff_seconds, retry.max_backoff_seconds)
        policy = RetryPolicy(retry.max_attempts, backoff, retry.outage_policy == "count")
        return Judge(policy, self.brake.admits, random.random)

    @cached_property
    def gate(self) -> PauseGate:
        return PauseGate(self.announce, clock, self._probe)

    @cached_property
    def watches(self) -> tuple[Rarely, ...]:
        return _watches(self.settings, self.pools, self.announce)

    def _events(self, pool: Database) -> PostgresEvents:
        settings = self.settings
        return PostgresEvents(
            pool,
            owner=settings.worker.id,
            start_id=self.start_id,
            lease_seconds=settings.lease.seconds,
            batch_bytes=settings.batch.bytes,
        )

    def _probe(self, target: str) -> Failure | None:
        """A pause of everything is probed at the main target."""
        return self.sink.probe(self.settings.elastic.index if target == EVERYTHING else target)

    def _tend(self) -> None:
        self.second.tend()
        for watch in self.watches:
            watch.tend()
        if self.stream is not None:
            self.stream.tend()


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


def _watches(settings: Settings, pools: Pools, announce: Announcer) -> tuple[Rarely, ...]:
    """What upkeep checks now and then. The first is also checked before the first claim."""
    actor, news = Actor(settings.worker.id, Source.DAEMON), News(announce)
    for pool in (pools.lanes, pools.documents):  # one claims, the other draws
        # Before the first claim there: what is written under a number that was given out before would be lost.
        pool.on_other_server = lambda connection: news.versions(catch_up_on(connection, actor))
    coverage, verifications = PostgresCoverage(pools.chores, settings.documents), PostgresVerifications(pools.chores)
    targets = settings.elastic.targets
    return (
        Rarely(SEQUENCE_SECONDS, lambda: news.versions(catch_up(pools.chores, actor)), clock),
        Rarely(UNATTACHED_SECONDS, lambda: news.coverage(settings.documents, coverage.forgotten), clock),
        Rarely(NEWS_SECONDS, lambda: news.verification(verifications.last_finished(targets)), clock),
    )


def _kinds(settings: Settings) -> Kinds:
    return Kinds(
        always=settings.claims_by_type,
        only=frozenset(settings.worker.entity_types),
        never=frozenset(settings.worker.exclude_entity_types),
        limited=_limits(settings),
        index_of=settings.elastic.index_for,
    )


def _learn_indexes(kinds: Kinds, pools: Pools) -> None:
    """Claims by type need their indexes: without them each would read past every other type's rows."""
    with pools.chores.connection() as connection:
        kinds.indexed = has_by_type(connection)
    if kinds.always and not kinds.indexed:
        raise ConfigurationError(
            [
                ConfigProblem(
                    "OUTBOX_ENTITY_TYPES, OUTBOX_KIND_* or ELASTIC_INDEX_MAP",
                    "claims by entity type need two more indexes",
                    "Run `outbox migrate --by-type`.",
                )
            ]
        )


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
        wake = partial(wake_one, lanes)
        loops["listen"] = Listener(lambda: ear(settings.database.direct_dsn), wake, watching.announce).run
    return loops


def _telemetry_loops(settings: Settings, pools: Pools, watching: Watching) -> dict[str, Loop]:
    # Types left to other daemons are sampled too: /readyz must not take their due rows for this one's debt.
    types = (*settings.known_entity_types, *settings.worker.exclude_entity_types)
    sampler = BacklogSampler(backlog_of(settings, pools.chores), watching.announce, types)
    rollup = Rollup(PostgresRollup(pools.chores), watching.announce)
    watching.announce.subscribe(rollup.handle)
    return {"sampler": sampler.run, "rollup": rollup.run}
