"""Joins what waits for events to be settled: a connection of its own, and LISTEN where the settings say so."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from outbox.config import Settings
from outbox.errors import SchemaMismatch
from outbox.ops.settling import Notified, SettleWatch
from outbox.store.browsing import PostgresBrowsing
from outbox.store.pool import Database, connect
from outbox.store.pooler import SETTLED, ear
from outbox.store.schema.state import has_notify


@contextmanager
def open_settle_watch(settings: Settings, *, application: str) -> Iterator[SettleWatch]:
    with closing(Database(settings.database.dsn, size=1, application=application)) as database:
        database.open()
        with closing(settle_watch(settings, database)) as watch:
            yield watch


def settle_watch(settings: Settings, database: Database) -> SettleWatch:
    listen = partial(_settle_ear, settings.database.direct_dsn) if settings.worker.listen else None
    return SettleWatch(PostgresBrowsing(database).statuses, listen)


@contextmanager
def _settle_ear(url: str) -> Iterator[Notified]:
    with connect(url, application="outbox-listen") as connection:
        there = has_notify(connection)
    if not there:
        raise SchemaMismatch("settles do not notify: run `outbox migrate --notify`")
    with ear(url, SETTLED) as notified:
        yield notified
