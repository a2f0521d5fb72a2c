"""Wires what compares, repairs and rebuilds the index, over a small pool and a client of Elasticsearch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event

from outbox.app import naming
from outbox.app.desk import log_capture, stream_offsets
from outbox.config import Settings
from outbox.config.load import as_environment
from outbox.daemon.lease import boottime
from outbox.errors import DatabaseDown, NotPermitted, OutboxError
from outbox.kafka.stream_mark import StreamMark
from outbox.ops.reindex.backfill import BUSY_RATE, BackfillDesk, IndexLost
from outbox.ops.reindex.copier import IN_FLIGHT, OLD_SECONDS, PAGE, Copier
from outbox.ops.reindex.document_pairs import DocumentPairs
from outbox.ops.reindex.held_places import HeldPlaces
from outbox.ops.reindex.losses import Losses, LossSearch
from outbox.ops.reindex.pacing import JobPace
from outbox.ops.reindex.parallel import LOCAL, Parallel, PartEngine, Spread
from outbox.ops.reindex.part_processes import LocalProcesses, cores
from outbox.ops.reindex.partwise_verify import PartwiseVerify
from outbox.ops.reindex.rebuild import RebuildDesk
from outbox.ops.reindex.rebuild_steps import OutOfSight, RebuildSteps, WorkerBarrier, new_owner
from outbox.ops.reindex.refresh import RefreshDesk
from outbox.ops.reindex.repair import Repair
from outbox.ops.reindex.verify import Verify
from outbox.policy.audit import Actor, Source
from outbox.policy.entity_type import BY_VIEW, KeptBy
from outbox.policy.reindex import Rebuild
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.documents import tombstones
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from outbox.sink.scan import ElasticScan
from outbox.store.acts import PostgresEventWriter
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import raise_version
from outbox.store.key_bounds import KeyBounds
from outbox.store.places import PostgresPlaces
from outbox.store.pool import Database, connect
from outbox.store.rebuild_parts import PostgresParts
from outbox.store.reindex import PostgresBackfills, PostgresRebuilds, PostgresVerifications
from outbox.store.replica import read_replica
from outbox.store.truth import PostgresPages, PostgresTruth
from outbox.store.view_shape import ViewKeys
from outbox.store.workers import Reclaims


class SparkMissing(OutboxError):
    """pyspark is not installed. Run `pip install 'outbox-projector[spark]'` here and in the executors, with Java 17 or
    later; or leave out --engine for processes on this machine."""

    exit_code = 78


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
def open_reindexing(settings: Settings) -> Iterator[Reindexing]:
    """Closed at the end. Raises DatabaseDown at once where nobody answers."""
    application = "outbox verify"
    connect(settings.database.dsn, application=application).close()
    with pools(settings, application) as (database, replica), closing(connect_elastic(settings.elastic)) as elastic:
        yield join(settings, database, elastic, replica, lambda: _replica_remark(settings, database, application))


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


def _replica_remark(settings: Settings, database: Database, application: str) -> str:
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
    settings: Settings, database: Database, replica: Database, elastic: Elastic, mark: StreamMark | None
) -> DocumentPairs:
    """Both sides of a comparison, which learns the view's types and ids once: each run has readers of its own."""
    truth = _truth(settings, replica)
    primary = None if replica is database else _truth(settings, database)
    return DocumentPairs(truth, ElasticScan(elastic), naming(settings), primary=primary, on_the_way=mark)


def join(
    settings: Settings,
    database: Database,
    elastic: Elastic,
    replica: Database | None = None,
    replica_remark: Callable[[], str] = lambda: "",
) -> Reindexing:
    """The same over a pool and a client that someone else owns."""
    mark = stream_mark(settings, database)

    def read() -> DocumentPairs:
        remark = replica_remark()
        pairs = comparing(settings, database, replica or database, elastic, mark)
        pairs.remark = remark
        return pairs

    def sides() -> DocumentPairs:
        """For what is written: never from a replica."""
        return DocumentPairs(_truth(settings, database), ElasticScan(elastic), naming(settings), on_the_way=mark)

    def search_losses(rebuild: Rebuild, rate: float, on_page: Callable[[int], None]) -> Losses:
        pairs = sides()
        search = LossSearch(pairs, rebuild.target, JobPace(rate, pairs.source.backlog_waits), on_page)
        return search.run(rebuild.old_index, rebuild.new_index)

    places = HeldPlaces(
        ElasticScan(elastic),
        naming(settings),
        PostgresPlaces(database),
        lambda seen, actor: raise_version(database, seen, actor),
    )
    owner = new_owner()
    parallel = _parallel(settings, database, owner)
    log, targets = PostgresVerifications(database), settings.elastic.targets
    verify = Verify(
        read,
        log,
        targets,
        PartwiseVerify(parallel, replica=True),
    )
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
        make_backfill=copies_of_rebuilds(settings, database, elastic),
        parallel=parallel,
    )
    keys = ViewKeys(database, settings.documents)
    return Reindexing(
        verify,
        repair,
        RebuildDesk(steps, settings.elastic.targets),
        BackfillDesk(
            PostgresBackfills(database, owner=owner),
            lambda: _truth(settings, database),
            partial(_kept_by_view, database),
            places.note_all,
            lambda types: keys.estimate(types) or parallel.estimate(types),
            copies(settings, database, elastic),
            parallel,
        ),
        RefreshDesk(keys, lambda: _truth(settings, database), events.refresh),
        parallel,
    )


def _parallel(settings: Settings, database: Database, owner: str) -> Parallel:
    return Parallel(
        table_of=lambda work: PostgresParts(database, work, owner=owner),
        space=lambda: KeyBounds(database, settings.documents),
        engine_of=lambda spread, at_once: _engine(settings, spread, at_once),
        in_view=lambda entity_type: _truth(settings, database).kept_by_view(entity_type),
        cores=cores,
    )


def stream_mark(settings: Settings, database: Database) -> StreamMark | None:
    """One for all comparisons of a process: who has waited in vain once waits less the next time."""
    offsets = stream_offsets(settings)
    return None if offsets is None else StreamMark(offsets, capture=log_capture(settings, database))


def _kept_by_view(database: Database, types: Sequence[str], actor: Actor) -> list[str]:
    """Of these, those that are declared so by now: what nobody had declared is."""
    store = PostgresEntityTypes(database)
    store.declare(dict.fromkeys(types, BY_VIEW), actor.name)
    declared = store.read()[1]
    return [kind for kind in types if declared[kind].kept_by is KeptBy.VIEW]


def _truth(settings: Settings, database: Database) -> PostgresTruth:
    return PostgresTruth(database, settings.documents, has_all_events=settings.source == "postgres")


def _engine(settings: Settings, spread: Spread, at_once: int) -> PartEngine:
    if spread.engine == LOCAL:
        return LocalProcesses(as_environment(settings), at_once)
    try:
        from outbox.app.spark_parts import SparkParts  # noqa: PLC0415 - 0.4 s, and an extra
    except ModuleNotFoundError as missing:
        raise SparkMissing(f"the module {missing.name}") from missing
    return SparkParts(as_environment(settings), at_once, spread.master)


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


def copies_of_rebuilds(
    settings: Settings, database: Database, elastic: Elastic
) -> Callable[[Rebuild, float], tuple[Copier, Sequence[str]]]:
    copier = _Copier(settings, database, elastic)

    def make(rebuild: Rebuild, rate: float) -> tuple[Copier, Sequence[str]]:
        truth = _truth(settings, database)
        index_of = naming(settings).index_of
        types = [kind for kind in truth.types() if index_of(kind) == rebuild.target]
        if lost := [kind for kind in truth.out_of_sight() if index_of(kind) == rebuild.target]:
            raise OutOfSight(f"{', '.join(lost)} is kept by payloads")
        backfill = copier.make(truth, rate, Actor(rebuild.started_by, Source.CLI))
        backfill.index_of = lambda _: rebuild.new_index
        return backfill, types

    return make


def copies(settings: Settings, database: Database, elastic: Elastic) -> Callable[[float, Actor], Copier]:
    copier = _Copier(settings, database, elastic)

    def make(rate: float, actor: Actor) -> Copier:
        backfill = copier.make(_truth(settings, database), rate, actor)
        backfill.clears = True
        backfill.lost, backfill.old_seconds, backfill.clock = IndexLost, OLD_SECONDS, boottime
        backfill.pace.busy_rate = BUSY_RATE
        return backfill

    return make


class _Copier:
    """What the copying of a rebuild and that into the index in use have in common."""

    def __init__(self, settings: Settings, database: Database, elastic: Elastic) -> None:
        self._settings = settings
        self._database = database
        self._sink = ElasticSink(elastic, settings.batch.bytes, lambda: PAGE)

    def make(self, truth: PostgresTruth, rate: float, actor: Actor) -> Copier:
        pages, names = PostgresPages(self._database, truth, self._settings.documents, actor), naming(self._settings)
        ending = Event()
        pace = JobPace(rate, truth.backlog_waits, rest=ending.wait)
        return Copier(pages, self._sink, names, names.index_of, PostgresPlaces(self._database), pace, ending=ending)
