"""Partitions that come and go change no row: what `doctor` says of each, and the remedy of docs/producers.md."""

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.ports import Level
from outbox.reindex import mismatches
from outbox.reindex.verify import VerifyOptions
from outbox.store.attach.attach import NotAttached, attach, detach
from tests.fixtures.joined import ALICE, JoinedWorld
from tests.fixtures.queue import EventTable
from tests.integration.test_attach import Seen

TABLES = """
create table m (id int, part int, primary key (id, part)) partition by list (part);
create table m_1 partition of m for values in (1);
create table m_2 partition of m for values in (2);
create view search_documents as
    select 'm'::text as entity_type, id as entity_id, to_json(m) as document from m;
insert into m select g, 1 + g % 2 from generate_series(1, 20) as g;
"""
COMMAND = "outbox attach public.m --type m --id id --per-row"


class Partitioned(JoinedWorld):
    """Twenty rows in two partitions, all of them in the index."""

    def _prepare(self) -> None:
        self.connection.execute(TABLES)
        self.attach()

    def attach(self) -> None:
        attach(self.connection, "m", entity_type="m", id_column="id")

    def repair(self) -> int:
        """`outbox repair`, and a projector that does what it wrote."""
        desk = self.reindexing().repair
        repaired = desk.write(desk.plan(VerifyOptions(rate=0), 1000), ALICE, "partition", rate=0)
        self.project()
        return repaired.written

    def said(self) -> list[tuple[Level, str, str]]:
        return [found for found in Seen(self.connection).found() if found[0] is not Level.OK]


@pytest.fixture
def world(
    queue: EventTable, es: Elasticsearch, elastic_url: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> Partitioned:
    monkeypatch.setattr(mismatches, "WAITS_SECONDS", (0.1,) * 4)
    made = Partitioned(queue, es, elastic_url, index)
    made.fill_index()
    assert made.count() == 20
    return made


def test_documents_of_a_partition_that_went_are_repaired_and_doctor_names_it_until_then(
    world: Partitioned,
) -> None:
    world.connection.execute("alter table m detach partition m_2")
    assert world.queue.counts() == {}
    ((level, detail, remedy),) = world.said()
    assert level is Level.WARN
    assert "1 partition was detached or dropped" in detail
    assert remedy == f"Run `outbox verify` and `outbox repair`, then `{COMMAND}`."
    assert world.drift() == 10
    assert world.repair() == 10
    assert (world.count(), world.drift()) == (10, 0)
    world.attach()
    assert world.said() == []


def test_rows_that_came_with_a_partition_are_written_and_doctor_names_it_until_then(
    world: Partitioned,
) -> None:
    world.connection.execute("create table m_3 (id int not null, part int not null)")
    world.connection.execute("insert into m_3 select g, 3 from generate_series(21, 30) as g")
    world.connection.execute("alter table m attach partition m_3 for values in (3)")
    assert world.queue.counts() == {}
    ((level, detail, said),) = world.said()
    assert level is Level.WARN
    assert "partitions that came since it was attached: public.m_3" in detail
    assert said == f"Run `{COMMAND}`, and if they came with rows `outbox backfill --type m`."
    world.attach()
    assert world.said() == []
    assert world.drift() == 10
    world.fill_index("m")
    assert (world.count(), world.drift()) == (30, 0)


def test_truncate_of_a_later_partition_is_refused_once_attached_again_and_repaired_if_it_came_before(
    world: Partitioned,
) -> None:
    world.connection.execute("create table m_3 partition of m for values in (3)")
    world.connection.execute("insert into m select g, 3 from generate_series(21, 30) as g")
    world.project()
    assert world.count() == 30
    assert "TRUNCATE is not refused there" in world.said()[0][1]
    world.connection.execute("truncate m_3")
    assert world.repair() == 10
    assert (world.count(), world.drift()) == (20, 0)
    world.attach()
    for statement in ("truncate m_3", "truncate m_1", "truncate m"):
        with pytest.raises(psycopg.errors.ObjectInUse, match="attached to the outbox"):
            world.connection.execute(statement.encode())


def test_a_partition_that_was_detached_can_be_truncated_once_its_own_guard_is_removed(world: Partitioned) -> None:
    with pytest.raises(NotAttached):
        detach(world.connection, "m_2")
    world.connection.execute("alter table m detach partition m_2")
    with pytest.raises(psycopg.errors.ObjectInUse, match="attached to the outbox"):
        world.connection.execute("truncate m_2")
    assert detach(world.connection, "m_2") == []
    world.connection.execute("truncate m_2")
    with pytest.raises(NotAttached):
        detach(world.connection, "m_2")
