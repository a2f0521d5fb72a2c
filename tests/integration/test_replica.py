"""OUTBOX_READ_DATABASE_URL over a real streaming replica: checked by the doctor and before each comparison."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.app.reindex import open_reindexing
from outbox.embedded import EmbeddedPostgres
from outbox.policy import replica as policy
from outbox.policy.drift import Kind
from outbox.ports import Finding
from outbox.reindex import mismatches
from outbox.reindex.joining import Reindexing, ReplicaDown, ReplicaUnusable
from outbox.reindex.parallel import Spread
from outbox.reindex.verify import VerifyOptions
from outbox.store import replica as reading
from outbox.store.schema.migrate import migrate
from tests.fixtures.joined import ALICE, JoinedWorld
from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable
from tests.fixtures.replica import SETTINGS, StreamingReplica
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres.temporary(settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """One for all tests: the last one promotes and stops it."""
    StreamingReplica.primary = primary
    with StreamingReplica.temporary(settings=SETTINGS) as server:
        yield server


@pytest.fixture
def queue(primary: EmbeddedPostgres) -> Iterator[EventTable]:
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(primary.url))
        migrate(url)
        yield EventTable(url, stack.enter_context(psycopg.connect(url, autocommit=True)), stack)


@pytest.fixture
def world(
    queue: EventTable, es: Elasticsearch, elastic_url: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> JoinedWorld:
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 4)
    monkeypatch.setattr(reading, "CATCH_UP_SECONDS", 0.5)
    return JoinedWorld(queue, es, elastic_url, index)


def copy_of(server: EmbeddedPostgres, queue: EventTable) -> str:
    return server.database_url(urlsplit(queue.url).path[1:])


@contextmanager
def reading_from(world: JoinedWorld, url: str) -> Iterator[Reindexing]:
    with open_reindexing(world.settings_for(OUTBOX_READ_DATABASE_URL=url)) as desk:
        yield desk


def test_what_a_replica_lacks_is_no_drift_and_what_differs_on_the_primary_is(
    world: JoinedWorld, replica: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replay is held: the primary decides about differences."""
    world.add(30)
    world.fill_index()
    url = copy_of(replica, world.queue)
    with psycopg.connect(url, autocommit=True) as copy, reading_from(world, url) as desk:
        eventually(lambda: copy.execute("select count(*) from articles").fetchone() == (30,), what="a replay")
        assert desk.verify.run(VerifyOptions(rate=0)).report.notes == []
        copy.execute("select pg_wal_replay_pause()")
        eventually(lambda: copy.execute("select pg_get_wal_replay_pause_state()").fetchone() == ("paused",))
        world.add(5, first=100)
        world.comment(3)
        world.delete(7)
        world.queue.connection.execute("insert into articles (id, title) values (200, 'no event')")
        for id in range(100, 105):
            world.refresh(id)
        world.project()
        assert copy.execute("select count(*) from articles").fetchone() == (30,)
        report = desk.verify.run(VerifyOptions(rate=0)).report
        assert (report.drift, report.conclusive, report.notes) == (0, True, []), "a second behind is no remark"
        world.es.index(index=world.index, id="article:9", document={}, version=10**9, version_type="external")
        world.es.indices.refresh(index=world.index)
        monkeypatch.setattr(policy, "MOST_BEHIND_SECONDS", 0.0)
        for processes in (1, 2):
            desk.parallel.spread = Spread(processes)
            found = desk.verify.run(VerifyOptions(rate=0))
            assert found.report.counts[Kind.DIFFERENT] == found.report.drift == 1
            assert "s behind: what changed since was compared as it was then" in found.sentence
        copy.execute("select pg_wal_replay_resume()")
        eventually(lambda: copy.execute("select count(*) from articles").fetchone() == (35,), what="a replay")
        assert desk.verify.run(VerifyOptions(rate=0)).report.counts[Kind.MISSING] == 1


def the(found: dict[str, list[Finding]]) -> Finding:
    (finding,) = found["replica"]
    return finding


def test_what_is_no_replica_of_the_database_is_refused_before_anything_is_compared(
    world: JoinedWorld, replica: EmbeddedPostgres, primary: EmbeddedPostgres, postgres_url: str
) -> None:
    world.add(3)
    world.fill_index()
    url = copy_of(replica, world.queue)
    for other, why in ((postgres_url, "another PostgreSQL cluster"), (replica.url, "another database")):
        with reading_from(world, other) as desk, pytest.raises(ReplicaUnusable, match=why) as refused:
            desk.verify.run(VerifyOptions(rate=0))
        assert refused.value.exit_code == 78
    with reading_from(world, world.queue.url.replace("127.0.0.1", "localhost")) as desk:
        assert desk.verify.run(VerifyOptions(rate=0)).report.drift == 0, "the primary by another address is right"
    with psycopg.connect(url, autocommit=True) as copy:
        copy.execute("select pg_promote()")
        eventually(lambda: copy.execute("select pg_is_in_recovery()").fetchone() == (False,), what="a promotion")
    with reading_from(world, url) as desk, pytest.raises(ReplicaUnusable, match="promoted"):
        desk.verify.run(VerifyOptions(rate=0))
    replica.stop()
    with reading_from(world, url) as desk:
        with pytest.raises(ReplicaDown, match="OUTBOX_READ_DATABASE_URL"):
            desk.repair.plan(VerifyOptions(rate=0), 10)
        assert desk.backfill.run(desk.backfill.start((), ALICE, "why"), ALICE, 0.0).written == 3
    assert world.queue.value("select count(*) from search_outbox_verifications") == 1
