"""Joins the console: its own small pool, one shared look for all pages, and the web application over them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from fastapi import FastAPI

from outbox.app.desk import join
from outbox.app.examining import open_doctor
from outbox.config import Settings
from outbox.daemon.shutdown import Stop
from outbox.errors import DatabaseDown
from outbox.ops.comparison import Comparison
from outbox.ports import Finding
from outbox.sink.reading import DocumentReader
from outbox.store.audit import PostgresAudit
from outbox.store.browsing import PostgresBrowsing
from outbox.store.inspection import PostgresBacklog
from outbox.store.pool import Database
from outbox.telemetry.logger import configure
from outbox.web import console
from outbox.web.sampler import Shared
from outbox.web.serve import Console, address, listen
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


def _examine(settings: Settings) -> Callable[[], Sequence[Finding]]:
    def look() -> Sequence[Finding]:
        with open_doctor(settings) as doctor:
            return list(doctor.examine())

    return look


def run_console(settings: Settings, tell: Callable[[str], None]) -> None:
    """`outbox console`: until a signal. The first lets running requests end, the second leaves at once."""
    settings.check_console()
    configure(settings.log.format, settings.log.level, settings.projection, "console", secrets=settings.secrets())
    stop = Stop()
    with open_console(settings) as app:
        served = Console(app, listen(settings.console.host, settings.console.port))
        stop.install()
        threading.Thread(target=_stop_when_told, args=(stop, served), daemon=True).start()
        served.run(lambda: tell(address(served.socket)))


def _stop_when_told(stop: Stop, served: Console) -> None:
    stop.event.wait()
    served.stop()
