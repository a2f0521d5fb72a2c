"""Wires what declares entity types: the store, and a change's documents by way of backfill and repair."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from outbox.app.reindex import join
from outbox.config import Settings
from outbox.ops.entity_types import TypesDesk
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.document import Naming
from outbox.policy.drift import HeldDocument, Key, Kind
from outbox.policy.event import DELETE
from outbox.policy.repair_event import RepairEvent
from outbox.reindex.joining import Reindexing
from outbox.reindex.scan import ElasticScan
from outbox.sink.client import connect as connect_elastic
from outbox.store.acts import PostgresEventWriter
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.pool import opened


@dataclass(frozen=True, slots=True)
class IndexedDocuments:
    reindexing: Reindexing
    scan: ElasticScan
    naming: Naming
    events: PostgresEventWriter

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

    def check(self, entity_type: str) -> None:
        self.reindexing.backfill.check_rebuild([entity_type])

    def bring_over(self, entity_type: str, actor: Actor, reason: str) -> None:
        backfill = self.reindexing.backfill
        backfill.run(backfill.start([entity_type], actor, reason), actor, 0.0)
        batch, written = uuid4(), 0
        for page in self._only_here(entity_type):
            events = [RepairEvent(Kind.ORPHANED, key, DELETE, None, None, held.routing) for key, held in page]
            detail = {"events": len(events), "first": events[0].key.entity_id}
            entry = Entry(Action.REPAIR_SUMMARY, actor, reason, batch, entity_type=entity_type, detail=detail)
            written += self.events.repair(batch, written, events, entry)

    def _only_here(self, entity_type: str) -> Iterator[list[tuple[Key, HeldDocument]]]:
        """Documents that the view does not have, a page at a time; whatever is open of their entities: payloads from
        before the change fail, and leave them as they are."""
        index, truth = self.naming.index_of(entity_type), self.reindexing.backfill.view()
        self.scan.refresh(index)
        for page in self.scan.scan(index):
            keys = {key: held for held in page for key in self.naming.keys_of(held.id, (entity_type,))}
            own = [key for key in keys if key.entity_type == entity_type]
            there = truth.present(own)
            if gone := [(key, keys[key]) for key in own if key not in there]:
                yield gone


@contextmanager
def open_types(settings: Settings) -> Iterator[TypesDesk]:
    """Closed at the end. Elasticsearch is asked only by a change."""
    with (
        opened(settings.database.dsn, size=5, application="outbox types") as database,
        closing(connect_elastic(settings.elastic)) as elastic,
    ):
        documents = IndexedDocuments(
            join(settings, database, elastic), ElasticScan(elastic), settings.naming, PostgresEventWriter(database)
        )
        yield TypesDesk(
            PostgresEntityTypes(database),
            documents.any_of,
            documents.check,
            documents.bring_over,
            settings.source == "kafka",
        )
