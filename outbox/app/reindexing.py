"""Joins what compares, mends and rebuilds the index, over a small pool of PostgreSQL and a client of Elasticsearch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from outbox.config import Settings
from outbox.ops.sides import Sides
from outbox.ops.verify import Verify
from outbox.policy.naming import Naming
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.scan import ElasticScan
from outbox.store.pool import Database, connect
from outbox.store.truth import PostgresTruth
from outbox.store.verifications import PostgresVerifications


@dataclass(frozen=True, slots=True)
class Reindexing:
    verify: Verify


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

    def sides() -> Sides:
        # A comparison learns the view's types and ids once, so each run has a reader of its own.
        return Sides(PostgresTruth(database, settings.documents), ElasticScan(elastic), naming_of(settings))

    verify = Verify(sides, PostgresVerifications(database), settings.elastic.targets)
    return Reindexing(verify)


def naming_of(settings: Settings) -> Naming:
    return Naming("{entity_type}" in settings.document_id, settings.elastic.index_for)
