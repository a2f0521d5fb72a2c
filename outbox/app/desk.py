"""Joins what people do with an installation, over one small pool of PostgreSQL. Nothing here needs Elasticsearch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox.config import Settings
from outbox.kafka.settle_wait import StreamMark
from outbox.ops.events import Browse
from outbox.ops.pauses import Pauses
from outbox.ops.status import OpenEvents, StatusDesk, StreamRecords
from outbox.reindex.tables import PostgresRebuilds
from outbox.store.acts import PostgresControls
from outbox.store.attach.attach import PostgresAttachments
from outbox.store.attach.from_view import PostgresViewAttachments
from outbox.store.attach.ignored import PostgresIgnoredTables
from outbox.store.backlog import PostgresBacklog, PostgresOverview
from outbox.store.browsing import PostgresBrowsing
from outbox.store.coverage import PostgresCoverage
from outbox.store.event_log import PostgresCapture
from outbox.store.pool import Database, opened

if TYPE_CHECKING:
    from outbox.kafka.group_progress import KafkaOffsets


@dataclass(frozen=True, slots=True)
class QueueDesk:
    browse: Browse
    status: StatusDesk
    events: OpenEvents
    pauses: Pauses
    producers: PostgresAttachments
    ignored: PostgresIgnoredTables
    view: PostgresViewAttachments
    stream: OpenEvents | None = None  # to be waited for before `events`: its exceptions become rows
    capture: PostgresCapture | None = None  # to be waited for before `stream`


@contextmanager
def open_desk(settings: Settings, *, application: str = "outbox cli") -> Iterator[QueueDesk]:
    with opened(settings.database.dsn, size=2, application=application) as database:
        yield join(settings, database)


def backlog_of(settings: Settings, database: Database) -> PostgresBacklog:
    """With the slot of the connector where events come from Kafka: without that, nothing is captured."""
    return PostgresBacklog(
        database,
        max_processing_seconds=settings.reclaim.max_processing_seconds,
        slot=settings.event_log.slot if settings.source == "kafka" else None,
    )


def join(settings: Settings, database: Database) -> QueueDesk:
    overview, controls = PostgresOverview(database), PostgresControls(database)
    stream = stream_offsets(settings)
    return QueueDesk(
        browse=Browse(PostgresBrowsing(database), settings.naming, settings.redact_fields),
        status=StatusDesk(
            overview,
            backlog_of(settings, database),
            stream,
            PostgresCoverage(database, settings.documents).forgotten,
            PostgresRebuilds(database, owner="status").newest,
        ),
        events=overview,
        pauses=Pauses(controls.can_pause_a_type, controls.put, controls.take_back),
        producers=PostgresAttachments(settings.database.direct_dsn, settings.documents),
        ignored=PostgresIgnoredTables(settings.database.direct_dsn),
        view=PostgresViewAttachments(settings.database.direct_dsn, settings.documents),
        stream=None if stream is None else StreamRecords(stream),
        capture=None if stream is None else log_capture(settings, database),
    )


def log_capture(settings: Settings, database: Database) -> PostgresCapture:
    return PostgresCapture(database, settings.event_log.slot)


def stream_offsets(settings: Settings) -> KafkaOffsets | None:
    """Late import: the client of Kafka is installed only where it is used. It connects when it is asked."""
    if settings.source != "kafka":
        return None
    from outbox.kafka.group_progress import KafkaOffsets  # noqa: PLC0415

    return KafkaOffsets(settings.kafka)


def stream_mark(settings: Settings, database: Database) -> StreamMark | None:
    """One for all comparisons of a process: who has waited in vain once waits less the next time."""
    offsets = stream_offsets(settings)
    return None if offsets is None else StreamMark(offsets, capture=log_capture(settings, database))
