"""Joins what compares, repairs and rebuilds the index, over a pool and a client that someone else owns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event

from outbox.config import Settings
from outbox.daemon.lease import boottime
from outbox.errors import DatabaseDown, NotPermitted, OutboxError
from outbox.policy.audit import Actor, Source
from outbox.policy.entity_type import BY_VIEW, KeptBy
from outbox.policy.reindex import Rebuild
from outbox.reindex.backfill import BUSY_RATE, BackfillDesk, IndexLost
from outbox.reindex.copier import IN_FLIGHT, OLD_SECONDS, PAGE, Copier
from outbox.reindex.document_pairs import DocumentPairs, EventsOnTheWay
from outbox.reindex.held_places import HeldPlaces
from outbox.reindex.key_bounds import KeyBounds
from outbox.reindex.losses import Losses, LossSearch
from outbox.reindex.pacing import JobPace
from outbox.reindex.parallel import Parallel, PartEngine, Spread
from outbox.reindex.part_processes import cores
from outbox.reindex.part_table import PostgresParts
from outbox.reindex.partwise_verify import PartwiseVerify
from outbox.reindex.rebuild import RebuildDesk
from outbox.reindex.rebuild_steps import OutOfSight, RebuildSteps, WorkerBarrier, new_owner
from outbox.reindex.refresh import RefreshDesk
from outbox.reindex.repair import Repair
from outbox.reindex.scan import ElasticScan
from outbox.reindex.tables import PostgresBackfills, PostgresRebuilds, PostgresVerifications
from outbox.reindex.verify import Verify
from outbox.sink.client import Elastic
from outbox.sink.documents import tombstones
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from outbox.store.acts import PostgresEventWriter
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import raise_version
from outbox.store.places import PostgresPlaces
from outbox.store.pool import Database
from outbox.store.replica import read_replica
from outbox.store.truth import PostgresPages, PostgresTruth
from outbox.store.view_shape import ViewKeys
from outbox.store.workers import Reclaims


class ReplicaUnusable(OutboxError):
    """OUTBOX_READ_DATABASE_URL names no replica of the database, so a comparison would find what is not so. Set it to a
    streaming replica of DATABASE_URL, or leave it unset. `outbox doctor` checks it."""

    exit_code = 78


class ReplicaDown(DatabaseDown):
    """The replica in OUTBOX_READ_DATABASE_URL does not answer. Start it, or leave that unset to read the primary."""


@dataclass(frozen=True, slots=True)
class Reindexing:
    verify: Verify
    repair: Repair
    rebuild: RebuildDesk
    backfill: BackfillDesk
    refresh: RefreshDesk
    parallel: Parallel


@contextmanager
def pools(settings: Settings, application: str) -> Iterator[tuple[Database, Database]]:
    """The database, and the one that comparisons read: a replica, or the same."""
    primary = Database(settings.database.dsn, size=3 + IN_FLIGHT, application=application)
    replica = primary
    if settings.database.has_replica:
        replica = Database(settings.database.read_dsn, size=2, application=application, may_be_standby=True)
        replica.open()
    primary.open()
    try:
        yield primary, replica
    finally:
        replica.close()
        primary.close()


def replica_remark(settings: Settings, database: Database, application: str) -> str:
    """What limits a comparison that reads the replica. Asked before each: a wrong one would hide drift."""
    if not settings.database.has_replica:
        return ""
    try:
        facts = read_replica(database, settings.database.read_dsn, application)
    except NotPermitted:
        return "whether the replica is one of this database was not checked: this role may not ask"
    except DatabaseDown as error:
        raise ReplicaDown(error.detail) from error
    if facts.refusal is not None:
        raise ReplicaUnusable(facts.refusal)
    return f"{facts.delay}: what changed since was compared as it was then" if facts.is_late else ""


def comparing(
    settings: Settings, database: Database, replica: Database, elastic: Elastic, mark: EventsOnTheWay | None
) -> DocumentPairs:
    """Both sides of a comparison, which learns the view's types and ids once: each run has readers of its own."""
    truth = _truth(settings, replica)
    primary = None if replica is database else _truth(settings, database)
    return DocumentPairs(truth, ElasticScan(elastic), settings.naming, primary=primary, on_the_way=mark)


def join(
    settings: Settings,
    database: Database,
    elastic: Elastic,
    mark: EventsOnTheWay | None,
    engine_of: Callable[[Spread, int], PartEngine],
    replica: Database | None = None,
    remark_of: Callable[[], str] = lambda: "",
) -> Reindexing:
    """`mark`: what is on its way in a stream, waited for by comparisons."""

    def read() -> DocumentPairs:
        remark = remark_of()
        pairs = comparing(settings, database, replica or database, elastic, mark)
        pairs.remark = remark
        return pairs

    def sides() -> DocumentPairs:
        """For what is written: never from a replica."""
        return DocumentPairs(_truth(settings, database), ElasticScan(elastic), settings.naming, on_the_way=mark)

    def search_losses(rebuild: Rebuild, rate: float, on_page: Callable[[int], None]) -> Losses:
        pairs = sides()
        search = LossSearch(pairs, rebuild.target, JobPace(rate, pairs.source.backlog_waits), on_page)
        return search.run(rebuild.old_index, rebuild.new_index)

    places = HeldPlaces(
        ElasticScan(elastic),
        settings.naming,
        PostgresPlaces(database),
        lambda seen, actor: raise_version(database, seen, actor),
    )
    owner = new_owner()
    parallel = _parallel(settings, database, owner, engine_of)
    log, targets = PostgresVerifications(database), settings.elastic.targets
    verify = Verify(read, log, targets, PartwiseVerify(parallel, replica=True))
    events = PostgresEventWriter(database)
    repair = Repair(verify, sides, partial(tombstones, elastic), places, events.repair)
    rebuilds = PostgresRebuilds(database, owner=owner)
    steps = RebuildSteps(
        rebuilds=rebuilds,
        indices=ElasticNewIndex(elastic),
        crew=WorkerBarrier(rebuilds, _reclaim(settings, database)),
        # Before a swap nothing may be hidden by a replica's lag.
        verify=Verify(sides, log, targets, PartwiseVerify(parallel, replica=False)),
        search_losses=search_losses,
        copier_of=partial(rebuild_copier, settings, database, elastic),
        parallel=parallel,
    )
    keys = ViewKeys(database, settings.documents)
    backfills = PostgresBackfills(database, owner=owner)

    def rebuilding(types: Sequence[str]) -> str:
        newest = rebuilds.newest()
        if newest is None or newest.is_over or newest.target not in map(settings.naming.index_of, types):
            return ""
        return newest.sentence

    return Reindexing(
        verify,
        repair,
        RebuildDesk(steps, settings.elastic.targets, backfills),
        BackfillDesk(
            backfills,
            lambda: _truth(settings, database),
            partial(_kept_by_view, database),
            places.note_all,
            rebuilding,
            lambda types: keys.estimate(types) or parallel.estimate(types),
            parallel,
        ),
        RefreshDesk(keys, lambda: _truth(settings, database), events.refresh),
        parallel,
    )


def _parallel(
    settings: Settings, database: Database, owner: str, engine_of: Callable[[Spread, int], PartEngine]
) -> Parallel:
    return Parallel(
        table_of=lambda work: PostgresParts(database, work, owner=owner),
        space=lambda: KeyBounds(database, settings.documents),
        engine_of=engine_of,
        in_view=lambda entity_type: _truth(settings, database).kept_by_view(entity_type),
        cores=cores,
    )


def _kept_by_view(database: Database, types: Sequence[str], actor: Actor) -> list[str]:
    """Of these, those that are declared so by now: what nobody had declared is."""
    store = PostgresEntityTypes(database)
    store.declare(dict.fromkeys(types, BY_VIEW), actor.name)
    declared = store.read()[1]
    return [kind for kind in types if declared[kind].kept_by is KeptBy.VIEW]


def _truth(settings: Settings, database: Database) -> PostgresTruth:
    return PostgresTruth(database, settings.documents, has_all_events=settings.source == "postgres")


def _reclaim(settings: Settings, database: Database) -> Callable[[], object]:
    """Who waits for old batches reclaims expired leases, and reports nothing about their causes."""
    reclaims = Reclaims(
        database,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
        rows_a_step=settings.reclaim.batch_size,
    )

    def take_back() -> None:
        with suppress(NotPermitted):  # an operator's role may only read: then a daemon has to do it
            reclaims.step(lambda _: False)

    return take_back


def rebuild_copier(
    settings: Settings, database: Database, elastic: Elastic, rebuild: Rebuild, rate: float
) -> tuple[Copier, Sequence[str]]:
    """Into its new index, and of which entity types."""
    truth, index_of = _truth(settings, database), settings.naming.index_of
    types = [kind for kind in truth.types() if index_of(kind) == rebuild.target]
    if lost := [kind for kind in truth.out_of_sight() if index_of(kind) == rebuild.target]:
        raise OutOfSight(f"{', '.join(lost)} is kept by payloads")
    copier = _copier(settings, database, elastic, truth, rate, Actor(rebuild.started_by, Source.CLI))
    copier.index_of = lambda _: rebuild.new_index
    return copier, types


def backfill_copier(settings: Settings, database: Database, elastic: Elastic, rate: float, by: str) -> Copier:
    """Into the index in use."""
    copier = _copier(settings, database, elastic, _truth(settings, database), rate, Actor(by, Source.CLI))
    copier.clears = True
    copier.lost, copier.old_seconds, copier.clock = IndexLost, OLD_SECONDS, boottime
    copier.pace.busy_rate = BUSY_RATE
    return copier


def _copier(
    settings: Settings, database: Database, elastic: Elastic, truth: PostgresTruth, rate: float, actor: Actor
) -> Copier:
    pages, names, ending = PostgresPages(database, truth, settings.documents, actor), settings.naming, Event()
    sink = ElasticSink(elastic, settings.batch.bytes, lambda: PAGE)
    pace = JobPace(rate, truth.backlog_waits, rest=ending.wait)
    return Copier(pages, sink, names, names.index_of, PostgresPlaces(database), pace, ending=ending)
