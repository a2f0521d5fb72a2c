"""Joins the console: its own small pool, one shared reading for all pages, and the web application over them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from fastapi import FastAPI
from psycopg import Connection

from outbox.app.desk import join
from outbox.app.doctor import open_doctor
from outbox.app.operations import operations
from outbox.app.settling import settle_watch
from outbox.config import Settings
from outbox.daemon.shutdown import Stop
from outbox.errors import DatabaseDown
from outbox.ops.audit import AuditDesk
from outbox.ops.events import Payloads
from outbox.ops.reprojection import ProjectionDesk
from outbox.ops.status import pulses
from outbox.policy.inputs import EventFilter
from outbox.ports import Finding
from outbox.reindex.tables import PostgresRebuilds, PostgresVerifications
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.documents import read_document, versions
from outbox.store.acts import PostgresEventWriter
from outbox.store.audit import PostgresAudit
from outbox.store.browsing import PostgresBrowsing
from outbox.store.failures import PostgresStatistics
from outbox.store.pool import Database
from outbox.store.truth import PostgresTruth
from outbox.telemetry.log_setup import configure
from outbox.web import application
from outbox.web.console_server import Console, address, listen
from outbox.web.services import ReplayDispatching, Services, Shared, snapshot

READERS: Final = 4  # pages wait here, never in front of a projector
ACTORS: Final = 4  # replays under way take nothing from those who only read
EXPORTERS: Final = 2  # exports take nothing from those who act
WAIT_SECONDS: Final = 3.0
READ_MS: Final = 3_000
ACT_MS: Final = 30_000  # pinning 100,000 rows takes seconds
DOCTOR_SECONDS: Final = 30.0
DAY_SECONDS: Final = 5.0
OPTIONS: Final[dict[str, Any]] = {"application": "outbox console", "timeout_seconds": WAIT_SECONDS}


@contextmanager
def open_console(settings: Settings) -> Iterator[FastAPI]:
    """The application, its pool closed at the end. A database that is down is a page's problem, not the start's."""
    reading = Bounded(settings.database.dsn, size=READERS, statement_timeout_ms=READ_MS, **OPTIONS)
    acting = Acting(settings.database.dsn, size=ACTORS, statement_timeout_ms=ACT_MS, **OPTIONS)
    exporting = Database(settings.database.dsn, size=EXPORTERS, statement_timeout_ms=ACT_MS, **OPTIONS)
    elastic = connect_elastic(settings.elastic)
    for pool in (reading, acting, exporting):
        pool.open()
    made = services(settings, reading, acting, exporting, elastic)
    try:
        yield application.build(settings, made)
    finally:
        made.dispatching.close()
        made.settling.close()
        elastic.close()
        with suppress(DatabaseDown):
            for pool in (reading, acting, exporting):
                pool.close()


class Bounded(Database):
    """Who only reads may not hold a connection for longer than others may wait."""

    @contextmanager
    def transaction(
        self, *, read_only: bool = False, snapshot: bool = False, timeout_ms: int | None = None
    ) -> Iterator[Connection[Any]]:
        limit = min(timeout_ms or READ_MS, READ_MS)
        with super().transaction(read_only=read_only, snapshot=snapshot, timeout_ms=limit) as connection:
            yield connection


class Acting(Database):
    """An act may take its time; a read or a step that is one statement may not."""

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        with self.transaction(timeout_ms=READ_MS) as connection:
            yield connection


def services(
    settings: Settings,
    reading: Database,
    acting: Database,
    exporting: Database,
    elastic: Elastic,
) -> Services:
    desk, sees = join(settings, reading), operations(settings, reading, elastic)
    does = operations(settings, acting, elastic)
    pulse = partial(pulses, PostgresStatistics(reading).minutes)
    read = partial(snapshot, desk.status, pulse, sees.stats, desk.browse, sees.audit)
    events, audit = PostgresBrowsing(reading), PostgresAudit(acting)
    return Services(
        status=Shared(read),
        day=Shared(sees.stats.read, DAY_SECONDS),
        groups=Shared(lambda: sees.failures.groups(EventFilter()), DAY_SECONDS),
        findings=Shared(_examine(settings), DOCTOR_SECONDS),
        browse=desk.browse,
        settling=settle_watch(settings, reading),
        payloads=Payloads(partial(read_document, elastic), events.event, audit.write, settings.redact_fields),
        failures=sees.failures,
        planner=does.planner,
        projection=_projection(settings, reading, acting, elastic),
        replays=does.replays,
        dispatching=ReplayDispatching(does.replays),
        discards=does.discards,
        pauses=desk.pauses,
        stats=sees.stats,
        audit=does.audit,
        exports=AuditDesk(PostgresAudit(exporting)),
        webhooks=does.webhooks,
        verifications=PostgresVerifications(reading).lately,
        rebuilds=PostgresRebuilds(reading, owner="console").lately,
    )


def _projection(settings: Settings, reading: Database, acting: Database, elastic: Elastic) -> ProjectionDesk:
    return ProjectionDesk(
        source=lambda: PostgresTruth(reading, settings.documents, has_all_events=settings.source == "postgres"),
        held=lambda asked: versions(elastic, asked, seconds=WAIT_SECONDS),
        naming=settings.naming,
        write=PostgresEventWriter(acting).ask,
    )


def _examine(settings: Settings) -> Callable[[], Sequence[Finding]]:
    def read() -> Sequence[Finding]:
        with open_doctor(settings) as doctor:
            return list(doctor.examine())

    return read


def run_console(settings: Settings, tell: Callable[[str], None]) -> None:
    """`outbox console`: until a signal. The first lets running requests end, the second leaves at once."""
    settings.check_console()
    shown = (settings.log.format, settings.log.level, settings.projection, "console")
    configure(*shown, secrets=settings.secrets(), names=settings.names())
    stop = Stop()
    with open_console(settings) as app:
        served = Console(app, listen(settings.console.host, settings.console.port), settings.console.trusted_proxies)
        stop.install()
        threading.Thread(target=_stop_on_request, args=(stop, served), daemon=True).start()
        served.run(lambda: tell(address(served.socket)))


def _stop_on_request(stop: Stop, served: Console) -> None:
    stop.event.wait()
    served.stop()
