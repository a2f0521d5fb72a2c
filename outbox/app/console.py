"""Joins the console: its own small pool, one shared look for all pages, and the web application over them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from fastapi import FastAPI

from outbox.app.desk import join
from outbox.app.examining import open_doctor
from outbox.app.operating import operations
from outbox.config import Settings
from outbox.daemon.shutdown import Stop
from outbox.errors import DatabaseDown
from outbox.ops.payloads import Payloads
from outbox.ops.pulse import PulseDesk
from outbox.ports import Finding
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.reading import DocumentReader
from outbox.store.audit import PostgresAudit
from outbox.store.browsing import PostgresBrowsing
from outbox.store.inspection import PostgresBacklog
from outbox.store.pool import Database
from outbox.store.pulse import PostgresPulse
from outbox.telemetry.logger import configure
from outbox.web import console
from outbox.web.dispatching import Dispatching
from outbox.web.sampler import Shared
from outbox.web.serve import Console, address, listen
from outbox.web.services import Services
from outbox.web.snapshot import looker

POOL_SIZE: Final = 4  # pages wait here, never in front of a projector
WAIT_SECONDS: Final = 3.0
STATEMENT_MS: Final = 3_000
DOCTOR_SECONDS: Final = 30.0
DAY_SECONDS: Final = 5.0


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
    elastic = connect_elastic(settings.elastic)
    database.open()
    made = services(settings, database, backlog, elastic)
    try:
        yield console.build(settings, made)
    finally:
        made.dispatching.close()
        elastic.close()
        with suppress(DatabaseDown):
            backlog.close()
            database.close()


def services(settings: Settings, database: Database, backlog: PostgresBacklog, elastic: Elastic) -> Services:
    desk, does = join(settings, database, backlog), operations(settings, database, elastic)
    look = looker(desk.status, PulseDesk(PostgresPulse(database)), does.stats, desk.browse, does.audit)
    events, audit = PostgresBrowsing(database), PostgresAudit(database)
    return Services(
        status=Shared(look),
        day=Shared(does.stats.look, DAY_SECONDS),
        findings=Shared(_examine(settings), DOCTOR_SECONDS),
        browse=desk.browse,
        payloads=Payloads(DocumentReader(elastic), events, audit, settings.redact_fields),
        failures=does.failures,
        planner=does.planner,
        replays=does.replays,
        dispatching=Dispatching(does.replays),
        discards=does.discards,
        pauses=desk.pauses,
        stats=does.stats,
        audit=does.audit,
        webhooks=does.webhooks,
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
