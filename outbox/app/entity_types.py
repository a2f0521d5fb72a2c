"""Wires what declares entity types: the store, and a change's documents by way of backfill and repair."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from outbox.app import naming
from outbox.app.reindex import Reindexing, join
from outbox.config import Settings
from outbox.ops.entity_types import TypesDesk
from outbox.ops.reindex.backfill import NotInView
from outbox.ops.reindex.repair import MOST
from outbox.ops.reindex.verify import VerifyOptions
from outbox.policy.audit import Actor
from outbox.policy.naming import Naming
from outbox.sink.client import connect as connect_elastic
from outbox.sink.scan import ElasticScan
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.pool import Database, connect


@dataclass(frozen=True, slots=True)
class IndexedDocuments:
    reindexing: Reindexing
    scan: ElasticScan
    naming: Naming

    def any_of(self, entity_type: str) -> bool:
        """Reads ids until the first; an id that does not tell its type may be of any."""
        index = self.naming.index_of(entity_type)
        pages = self.scan.scan(index)
        return any(
            key.entity_type == entity_type
            for page in pages
            for held in page
            for key in self.naming.keys_of(held.id, (entity_type,))
        )

    def bring_over(self, entity_type: str, actor: Actor, reason: str) -> None:
        backfill, repair = self.reindexing.backfill, self.reindexing.repair
        try:
            run = backfill.start([entity_type], actor, reason)
        except NotInView:  # its last entity is gone: all that is left is to remove
            pass
        else:
            backfill.run(run, actor, 0.0)
        cut = True
        while cut:
            plan = repair.plan(VerifyOptions(entity_type, by=actor.name), MOST)
            repair.write(plan, actor, reason, rate=0.0, expect_deletes=len(plan.findings))
            cut = plan.cut


@contextmanager
def open_types(settings: Settings) -> Iterator[TypesDesk]:
    """Closed at the end. Elasticsearch is asked only by a change."""
    connect(settings.database.dsn, application="outbox types").close()
    database = Database(settings.database.dsn, size=5, application="outbox types")
    elastic = connect_elastic(settings.elastic)
    database.open()
    try:
        documents = IndexedDocuments(join(settings, database, elastic), ElasticScan(elastic), naming(settings))
        yield TypesDesk(PostgresEntityTypes(database), documents, settings.source == "kafka")
    finally:
        elastic.close()
        database.close()
