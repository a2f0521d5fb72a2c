"""The connector's slot at a real PostgreSQL, from left behind to lost: what the sampler and the doctor say."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres
from outbox.facts import SlotSample
from outbox.ops.doctor.event_log import event_log
from outbox.ports import Finding, Level
from outbox.store.backlog import PostgresBacklog
from outbox.store.doctor import PostgresDoctor
from outbox.store.schema.migrate import migrate, turn_log_off
from tests.fixtures.failures import open_database
from tests.fixtures.servers import POSTGRES_SETTINGS, in_memory

SLOT = "outbox_log"
# A limit of two segments, checked at every checkpoint: a server of its own, because the limit is for all its slots.
LIMITED = {"wal_level": "logical", "max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}
MOST_SEGMENTS = 20


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with EmbeddedPostgres.temporary(in_memory(), settings={**POSTGRES_SETTINGS, **LIMITED}) as postgres:
        migrate(postgres.url)
        yield postgres.url


@pytest.fixture
def log(server: str) -> Iterator[psycopg.Connection[Any]]:
    migrate(server, log=True)
    with psycopg.connect(server, autocommit=True) as connection:
        yield connection
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    turn_log_off(server)


def sample(server: str) -> SlotSample | None:
    with open_database(server, size=1) as pool:
        return PostgresBacklog(pool, slot=SLOT).slot()


def problems(server: str) -> list[Finding]:
    with open_database(server, size=1) as pool:
        found = event_log(PostgresDoctor(pool, "search_documents", server).event_log(SLOT), SLOT, 3)
        return [finding for finding in found if finding.name == "slot" and finding.level is not Level.OK]


def write_segment(log: psycopg.Connection[Any]) -> None:
    log.execute("select pg_logical_emit_message(false, 'other', repeat('x', 1000000)), pg_switch_wal()")
    log.execute("checkpoint")


def test_a_slot_is_sampled_until_it_is_lost(log: psycopg.Connection[Any], server: str) -> None:
    assert sample(server) == SlotSample(active=False, kept_bytes=0, unread_bytes=0, safe_bytes=None)  # there is none
    log.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
    first = sample(server)
    assert first is not None
    assert first.safe_bytes is not None
    assert first.safe_bytes > 16 << 20
    write_segment(log)
    second = sample(server)
    assert second is not None
    assert second.kept_bytes >= first.kept_bytes + 1_000_000
    assert second.unread_bytes >= 1_000_000
    last = second
    for _ in range(MOST_SEGMENTS):
        write_segment(log)
        last = sample(server) or last
        if last.safe_bytes == 0:
            break
    assert last == SlotSample(active=False, kept_bytes=0, unread_bytes=last.unread_bytes, safe_bytes=0)
    lost = next(finding for finding in problems(server) if "is lost" in finding.detail)
    assert lost.level is Level.BAD
    assert "outbox verify" in lost.remedy
    assert "outbox refresh --all" in lost.remedy
