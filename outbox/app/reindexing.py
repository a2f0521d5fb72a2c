"""Joins what compares, mends and rebuilds the index, over a small pool of PostgreSQL and a client of Elasticsearch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from outbox.config import Settings
from outbox.errors import NotPermitted
from outbox.ops.backfill import Backfill
from outbox.ops.crew import Crew, new_owner
from outbox.ops.pace import Pace
from outbox.ops.rebuild import RebuildDesk
from outbox.ops.rebuild_errors import OutOfSight
from outbox.ops.rebuild_steps import RebuildSteps
from outbox.ops.repair import Repair
from outbox.ops.sides import Sides
from outbox.ops.verify import Verify
from outbox.policy.naming import Naming
from outbox.policy.rebuild import Rebuild
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from outbox.sink.scan import ElasticScan
from outbox.sink.tombstones import ElasticTombstones
from outbox.store.pool import Database, connect
from outbox.store.rebuilds import PostgresRebuilds
from outbox.store.repairs import PostgresRepairs
from outbox.store.truth import PostgresTruth
from outbox.store.verifications import PostgresVerifications
from outbox.store.workers import Reclaims


@dataclass(frozen=True, slots=True)
class Reindexing:
    verify: Verify
    repair: Repair
    rebuild: RebuildDesk


@contextmanager
def open_reindexing(settings: Settings, *, application: str = "outbox verify") -> Iterator[Reindexing]:
    """Closed at the end. Raises DatabaseDown at once where nobody answers."""
    connect(settings.database.dsn, application=application).close()
    database = Database(settings.database.dsn, size=2, application=application, prepare=settings.database.prepare)
    elastic = connect_elastic(settings.elastic)
    database.open()
    try:
        yield join(settings, database, elastic)
    finally:
        elastic.close()
        database.close()


def join(settings: Settings, database: Database, elastic: Elastic) -> Reindexing:
    """The same over a pool and a client that someone else owns."""

    def sides() -> tuple[Sides, PostgresTruth]:
        # A comparison learns the view's types and ids once, so each run has a reader of its own.
        truth = PostgresTruth(database, settings.documents)
        return Sides(truth, ElasticScan(elastic), naming_of(settings)), truth

    verify = Verify(lambda: sides()[0], PostgresVerifications(database), settings.elastic.targets)
    repair = Repair(verify, sides, ElasticTombstones(elastic), PostgresRepairs(database))
    rebuilds = PostgresRebuilds(database, owner=new_owner())
    steps = RebuildSteps(
        rebuilds=rebuilds,
        indices=ElasticNewIndex(elastic),
        crew=Crew(rebuilds, _reclaim(settings, database)),
        verify=verify,
        make_backfill=_backfills(settings, database, elastic),
    )
    return Reindexing(verify, repair, RebuildDesk(steps, settings.elastic.targets))


def _reclaim(settings: Settings, database: Database) -> Callable[[], object]:
    """Who waits for old batches takes back what ran out, without a word about who was to blame."""
    reclaims = Reclaims(
        database,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
        rows_a_step=settings.reclaim.batch_size,
    )

    def take_back() -> None:
        with suppress(NotPermitted):  # an operator's role may only look: then a daemon has to do it
            reclaims.step(lambda _: False)

    return take_back


def _backfills(
    settings: Settings, database: Database, elastic: Elastic
) -> Callable[[Rebuild, float], tuple[Backfill, Sequence[str]]]:
    scan, naming = ElasticScan(elastic), naming_of(settings)
    sink = ElasticSink(elastic, settings.batch.bytes, lambda: settings.batch.size)

    def make(rebuild: Rebuild, rate: float) -> tuple[Backfill, Sequence[str]]:
        truth = PostgresTruth(database, settings.documents)
        types = [kind for kind in truth.types() if naming.index_of(kind) == rebuild.target]
        routed = scan.is_routed(rebuild.old_index)
        if lost := [kind for kind in truth.types_out_of_sight() if naming.index_of(kind) == rebuild.target]:
            raise OutOfSight(f"documents of {', '.join(lost)} travel in events only")
        if routed and not truth.by_entity:
            raise OutOfSight("documents of this index have a routing, which only events know")
        pace = Pace(rate, truth.backlog_waits)
        return Backfill(truth, scan, sink, naming, rebuild.old_index, rebuild.new_index, routed, pace), types

    return make


def naming_of(settings: Settings) -> Naming:
    return Naming("{entity_type}" in settings.document_id, settings.elastic.index_for)
