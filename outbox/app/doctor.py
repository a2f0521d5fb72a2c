"""Wires what checks Elasticsearch for people: the target indexes, and the doctor, which checks everything."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict

from outbox.app import desk
from outbox.config import Settings
from outbox.errors import DatabaseDown
from outbox.kafka.connector_settings import connector_check, connector_plan
from outbox.kafka.findings import StreamExam
from outbox.ops.doctor.database import DoctorSettings, replica
from outbox.ops.doctor.doctor import Doctor, IndexDesk
from outbox.ops.doctor.namesakes import namesakes
from outbox.ops.doctor.transport import LoginAddresses, transport
from outbox.ports import Finding
from outbox.sink.client import Elastic
from outbox.sink.client import connect as connect_elastic
from outbox.sink.index import ElasticIndices
from outbox.sink.index_check import TargetCheck
from outbox.sink.server_check import ElasticServerCheck
from outbox.sink.target_check import Targets
from outbox.store.backlog import PostgresOverview
from outbox.store.doctor import PostgresDoctor, require_primary
from outbox.store.pool import Database, plain_dsn
from outbox.store.replica import read_replica


@contextmanager
def open_index_desk(settings: Settings) -> Iterator[IndexDesk]:
    with closing(connect_elastic(settings.elastic)) as elastic:
        yield IndexDesk(
            create=ElasticIndices(elastic).create,
            check_index=_checks(settings, elastic).check,
            targets=settings.elastic.targets,
            require_server=_examination(settings, elastic).require,
        )


@contextmanager
def open_doctor(settings: Settings) -> Iterator[Doctor]:
    """Opens nothing by itself: a server that is down is a finding, not an error."""
    elastic = connect_elastic(settings.elastic)
    database = Database(settings.database.dsn, size=2, application="outbox doctor")
    try:
        yield _doctor(settings, database, elastic)
    finally:
        elastic.close()
        with suppress(DatabaseDown):
            database.close()


def _doctor(settings: Settings, database: Database, elastic: Elastic) -> Doctor:
    examination = _examination(settings, elastic)
    store = PostgresDoctor(database, settings.documents, settings.database.direct_dsn)

    def reach() -> None:
        require_primary(settings.database.dsn, "outbox doctor")
        database.open()

    return Doctor(
        connect=reach,
        store=store,
        queue=desk.join(settings, database).status.read,
        elasticsearch=examination.server,
        index_check=_checks(settings, elastic).check,
        versions=examination.versions,
        targets=settings.elastic.targets,
        index_of=settings.elastic.index_for,
        wanted=DoctorSettings(
            settings.claims_by_type,
            settings.worker.listen,
            settings.documents,
            settings.event_log.slot,
            settings.event_log.days,
            settings.batch.max_document_bytes,
        ),
        nodes=elastic.check_nodes,
        stream=_stream(settings, database, store),
        connector=_connector(settings),
        transport=lambda: transport(_addresses(settings)),
        replica=_replica(settings, database),
        names=lambda: namesakes([*sys.path, "."]),
    )


def _addresses(settings: Settings) -> LoginAddresses:
    about = conninfo_to_dict(plain_dsn(settings.database.dsn))
    hosts = str(about.get("hostaddr") or about.get("host") or "").split(",")
    elastic = settings.elastic
    login = bool(elastic.api_key or elastic.password or elastic.aws_region)
    return LoginAddresses(
        elastic.urls, login, hosts, str(about.get("sslmode") or os.environ.get("PGSSLMODE", "prefer"))
    )


def _replica(settings: Settings, database: Database) -> Callable[[], Iterable[Finding]]:
    if not settings.database.has_replica:
        return tuple
    return lambda: replica(lambda: read_replica(database, settings.database.read_dsn, "outbox doctor"))


def _stream(settings: Settings, database: Database, store: PostgresDoctor) -> Callable[[], Iterable[Finding]]:
    offsets = desk.stream_offsets(settings)
    if offsets is None:
        return tuple
    overview = PostgresOverview(database)

    def workers() -> set[str]:
        return {row["worker_id"] for row in overview.workers()}

    rows_seconds = settings.retention.days * 86_400 or None
    return StreamExam(offsets, workers, store.last_version, rows_seconds).examine


def _connector(settings: Settings) -> Callable[[], Iterable[Finding]]:
    """A connector of another name or host is for `outbox kafka connector --check`, which has options for it."""
    if settings.connect.url is None:
        return tuple
    return connector_check(connector_plan(settings), settings.connect.url, settings.connect).state


def _checks(settings: Settings, elastic: Elastic) -> TargetCheck:
    return TargetCheck(elastic, Targets(elastic), settings.reclaim.max_processing_seconds)


def _examination(settings: Settings, elastic: Elastic) -> ElasticServerCheck:
    return ElasticServerCheck(elastic, settings.naming.document_id)
