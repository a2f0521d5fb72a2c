"""Joins the console: its own small pool, one shared look for all pages, and the web application over them."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from fastapi import FastAPI

from outbox.app.desk import join
from outbox.app.examining import open_doctor
from outbox.config import Settings
from outbox.daemon.shutdown import Stop
from outbox.errors import DatabaseDown
from outbox.ops.audit import AuditDesk
from outbox.ops.discard import DiscardDesk
from outbox.ops.dispatch import Dispatcher
from outbox.ops.groups import FailureDesk
from outbox.ops.payloads import Payloads
from outbox.ops.plan import Planner, Versions
from outbox.ops.pulse import PulseDesk
from outbox.ops.replay import ReplayDesk
from outbox.ops.stats import StatsDesk
from outbox.ops.webhook import WebhookDesk
from outbox.policy.document import Address
from outbox.policy.replay import ReplayBatch
from outbox.policy.webhook import Notice, replay_notices
from outbox.ports import Finding
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.reading import DocumentReader
from outbox.sink.versions import versions
from outbox.sink.webhook import Posted, post
from outbox.store.audit import PostgresAudit
from outbox.store.browsing import PostgresBrowsing
from outbox.store.discards import PostgresDiscards
from outbox.store.failures import PostgresFailures
from outbox.store.inspection import PostgresBacklog
from outbox.store.pool import Database
from outbox.store.pulse import PostgresPulse
from outbox.store.replay_steps import ReplaySteps
from outbox.store.replays import PostgresReplays
from outbox.store.statistics import PostgresStatistics
from outbox.store.webhooks import PostgresWebhooks
from outbox.telemetry.logger import configure
from outbox.web import console
from outbox.web.dispatching import Dispatching
from outbox.web.sampler import Shared
from outbox.web.serve import Console, address, listen
from outbox.web.services import Services
from outbox.web.snapshot import looker

Row = Mapping[str, Any]
POOL_SIZE: Final = 4  # pages wait here, never in front of a projector
WAIT_SECONDS: Final = 3.0
STATEMENT_MS: Final = 3_000
DOCTOR_SECONDS: Final = 30.0
DAY_SECONDS: Final = 5.0
PLAN_SECONDS: Final = 2.0


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
    desk = join(settings, database, backlog)
    audit_log, browsing = PostgresAudit(database), PostgresBrowsing(database)
    stats, audit = StatsDesk(PostgresStatistics(database)), AuditDesk(audit_log, settings.retention.prune_batch_size)
    failures = PostgresFailures(database)
    replays = _replays(settings, database)
    look = looker(desk.status, PulseDesk(PostgresPulse(database)), stats, desk.browse, audit)
    return Services(
        status=Shared(look),
        day=Shared(stats.look, DAY_SECONDS),
        findings=Shared(_examine(settings), DOCTOR_SECONDS),
        browse=desk.browse,
        payloads=Payloads(DocumentReader(elastic), browsing, audit_log, settings.redact_fields),
        failures=FailureDesk(failures),
        planner=Planner(failures, _versions(settings, elastic)),
        replays=replays,
        dispatching=Dispatching(replays),
        discards=DiscardDesk(PostgresDiscards(database)),
        pauses=desk.pauses,
        stats=stats,
        audit=audit,
        webhooks=_webhooks(settings, database),
    )


def _replays(settings: Settings, database: Database) -> ReplayDesk:
    def notices(batch: ReplayBatch) -> list[Notice]:
        return replay_notices(batch, settings.webhook.url)

    owner = f"console-{socket.gethostname()}-{os.getpid()}"
    steps = ReplaySteps(database, owner=owner, notices=notices)
    limits = settings.replay
    dispatcher = Dispatcher(steps, max_polls=limits.max_polls, rows_a_step=limits.max_start_per_batch)
    return ReplayDesk(
        PostgresReplays(database, owner=owner, notices=notices), dispatcher, settings.webhook.allowed_hosts
    )


def _webhooks(settings: Settings, database: Database) -> WebhookDesk:
    hook = settings.webhook
    secret = hook.secret.get_secret_value() if hook.secret else None

    def send(url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        return post(url, headers, body, hook.timeout_seconds, hook.allowed_hosts)

    return WebhookDesk(PostgresWebhooks(database), send, hook.url, secret)


def _versions(settings: Settings, elastic: Elastic) -> Versions:
    def look(rows: Sequence[Row]) -> list[int | None] | None:
        return versions(elastic, [_address(settings, row) for row in rows], seconds=PLAN_SECONDS)

    return look


def _address(settings: Settings, row: Row) -> Address:
    id = settings.document_id.format(entity_type=row["entity_type"], entity_id=row["entity_id"])
    return Address(settings.elastic.index_for(row["entity_type"]), id, row["routing"])


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
