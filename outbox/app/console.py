"""Joins the console: its own small pool, one shared look for all pages, and the web application over them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from fastapi import FastAPI

from outbox.app.desk import join
from outbox.app.examining import open_doctor
from outbox.config import Settings
from outbox.errors import DatabaseDown
from outbox.ops.comparison import Comparison
from outbox.sink.reading import DocumentReader
from outbox.store.audit import PostgresAudit
from outbox.store.browsing import PostgresBrowsing
from outbox.store.inspection import PostgresBacklog
from outbox.store.pool import Database
from outbox.web import console
from outbox.web.sampler import Shared
from outbox.web.services import Services

POOL_SIZE: Final = 4  # pages wait here, never in front of a projector
WAIT_SECONDS: Final = 3.0
STATEMENT_MS: Final = 3_000
DOCTOR_SECONDS: Final = 30.0


@contextmanager
def open_console(settings: Settings) -> Iterator[FastAPI]:
    """The application, its pool closed at the end. A database that is away is a page's problem, not the start's."""
    database = Database(
        settings.database.dsn,
        size=POOL_SIZE,
        application="outbox console",
        prepare=settings.database.prepare,
        timeout_seconds=WAIT_SECONDS,
        statement_timeout_ms=STATEMENT_MS,
    )
    backlog = PostgresBacklog(settings.database.dsn, max_processing_seconds=settings.reclaim.max_processing_seconds)
    reader = DocumentReader(settings.elastic)
    database.open()
    try:
        yield console.build(settings, services(settings, database, backlog, reader))
    finally:
        reader.close()
        with suppress(DatabaseDown):
            backlog.close()
            database.close()


def services(settings: Settings, database: Database, backlog: PostgresBacklog, reader: DocumentReader) -> Services:
    desk = join(settings, database, backlog)
    audit = PostgresAudit(database)
    return Services(
        status=Shared(desk.status.look),
        findings=Shared(_examine(settings), DOCTOR_SECONDS),
        browse=desk.browse,
        comparison=Comparison(reader, PostgresBrowsing(database), audit, settings.redact_fields),
        pauses=desk.pauses,
    )


def _examine(settings: Settings) -> Callable[[], list]:  # type: ignore[type-arg]
    def look() -> list:  # type: ignore[type-arg]
        with open_doctor(settings) as doctor:
            return list(doctor.examine())

    return look
