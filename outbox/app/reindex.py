"""Wires what compares, repairs and rebuilds the index, over a small pool and a client of Elasticsearch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event

from outbox.app import naming
from outbox.config import Settings
from outbox.daemon.lease import boottime
from outbox.errors import NotPermitted
from outbox.ops.reindex.backfill import BUSY_RATE, BackfillDesk, IndexLost
from outbox.ops.reindex.comparison import DocumentPairs
from outbox.ops.reindex.copier import IN_FLIGHT, OLD_SECONDS, PAGE, Copier
from outbox.ops.reindex.pacing import JobPace
from outbox.ops.reindex.rebuild import RebuildDesk
from outbox.ops.reindex.rebuild_steps import OutOfSight, RebuildSteps, WorkerBarrier, new_owner
from outbox.ops.reindex.refresh import RefreshDesk
from outbox.ops.reindex.repair import Repair
from outbox.ops.reindex.verify import Verify
from outbox.policy.audit import Actor, Source
from outbox.policy.reindex import Rebuild
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.documents import ElasticTombstones
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from outbox.sink.scan import ElasticScan
from outbox.store.acts import PostgresEventWriter, PostgresRepairs
from outbox.store.pool import Database, connect
from outbox.store.reindex import PostgresBackfills, PostgresRebuilds, PostgresVerifications
from outbox.store.truth import PostgresPages, PostgresTruth
from outbox.store.view_shape import ViewKeys
from outbox.store.workers import Reclaims


@dataclass(frozen=True, slots=True)
class Reindexing:
    verify: Verify
    repair: Repair
    rebuild: RebuildDesk
    backfill: BackfillDesk
    refresh: RefreshDesk


@contextmanager
def open_reindexing(settings: Settings, *, application: str = "outbox verify") -> Iterator[Reindexing]:
    """Closed at the end. Raises DatabaseDown at once where nobody answers."""
    connect(settings.database.dsn, application=application).close()
    database = Database(settings.database.dsn, size=2 + IN_FLIGHT, application=application)
    elastic = connect_elastic(settings.elastic)
    database.open()
    try:
        yield join(settings, database, elastic)
    finally:
        elastic.close()
        database.close()


def join(settings: Settings, database: Database, elastic: Elastic) -> Reindexing:
    """The same over a pool and a client that someone else owns."""

    def sides() -> tuple[DocumentPairs, PostgresTruth]:
        # A comparison learns the view's types and ids once, so each run has a reader of its own.
        truth = PostgresTruth(database, settings.documents)
        return DocumentPairs(truth, ElasticScan(elastic), naming(settings)), truth

    verify = Verify(lambda: sides()[0], PostgresVerifications(database), settings.elastic.targets)
    repair = Repair(verify, sides, ElasticTombstones(elastic), PostgresRepairs(database))
    owner = new_owner()
    rebuilds = PostgresRebuilds(database, owner=owner)
    steps = RebuildSteps(
        rebuilds=rebuilds,
        indices=ElasticNewIndex(elastic),
        crew=WorkerBarrier(rebuilds, _reclaim(settings, database)),
        verify=verify,
        make_backfill=_copies_of_rebuilds(settings, database, elastic),
    )
    keys = ViewKeys(database, settings.documents)
    return Reindexing(
        verify,
        repair,
        RebuildDesk(steps, settings.elastic.targets),
        BackfillDesk(
            PostgresBackfills(database, owner=owner),
            lambda: PostgresTruth(database, settings.documents),
            keys.estimate,
            _copies(settings, database, elastic),
        ),
        RefreshDesk(keys, lambda: PostgresTruth(database, settings.documents), PostgresEventWriter(database)),
    )


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


def _copies_of_rebuilds(
    settings: Settings, database: Database, elastic: Elastic
) -> Callable[[Rebuild, float], tuple[Copier, Sequence[str]]]:
    copier = _Copier(settings, database, elastic)

    def make(rebuild: Rebuild, rate: float) -> tuple[Copier, Sequence[str]]:
        truth = PostgresTruth(database, settings.documents)
        index_of = naming(settings).index_of
        types = [kind for kind in truth.types() if index_of(kind) == rebuild.target]
        if lost := [kind for kind in truth.types_out_of_sight() if index_of(kind) == rebuild.target]:
            raise OutOfSight(f"documents of {', '.join(lost)} travel in events only")
        backfill = copier.make(truth, [rebuild.old_index], rate, Actor(rebuild.started_by, Source.CLI))
        backfill.index_of = lambda _: rebuild.new_index
        return backfill, types

    return make


def _copies(
    settings: Settings, database: Database, elastic: Elastic
) -> Callable[[Sequence[str], float, Actor], Copier]:
    copier = _Copier(settings, database, elastic)

    def make(types: Sequence[str], rate: float, actor: Actor) -> Copier:
        truth = PostgresTruth(database, settings.documents)
        backfill = copier.make(truth, sorted({copier.naming.index_of(kind) for kind in types}), rate, actor)
        backfill.lost, backfill.old_seconds, backfill.clock = IndexLost, OLD_SECONDS, boottime
        backfill.pace.busy_rate = BUSY_RATE
        return backfill

    return make


class _Copier:
    """What the copying of a rebuild and that into the index in use have in common."""

    def __init__(self, settings: Settings, database: Database, elastic: Elastic) -> None:
        self.naming = naming(settings)
        self._settings = settings
        self._database = database
        self._scan = ElasticScan(elastic)
        self._sink = ElasticSink(elastic, settings.batch.bytes, lambda: PAGE)

    def make(self, truth: PostgresTruth, indexes: Sequence[str], rate: float, actor: Actor) -> Copier:
        """Raises OutOfSight where documents have a routing that nobody can tell."""
        routed = not truth.routed_by_view() and any(map(self._scan.is_routed, indexes))
        if routed and not truth.by_entity:
            raise OutOfSight("documents of this index have a routing, which only events know")
        pages = PostgresPages(self._database, truth, self._settings.documents, actor)
        ending = Event()
        pace = JobPace(rate, truth.backlog_waits, rest=ending.wait)
        return Copier(pages, self._sink, self.naming, self.naming.index_of, routed, pace, ending=ending)
