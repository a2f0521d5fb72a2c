"""What fan-outs meet that nobody meant: tables and columns that went, rights that lack, odd ids and odd keys."""

from typing import Any

import pytest
from elasticsearch import Elasticsearch
from psycopg import sql

from outbox.store.attach.attach import attach
from outbox.store.fanouts import PostgresFanouts
from outbox.store.pool import Database
from tests.fixtures.fanning import Fanning
from tests.fixtures.queue import EventTable
from tests.fixtures.roles import Roles


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> Fanning:
    return Fanning(queue, es, elastic_url, index)


def failed(world: Fanning) -> Any:
    (fanout,) = world.fanouts()
    assert (fanout.status, fanout.dead_reason) == ("failed", "non_retryable")
    return fanout


def replay(world: Fanning) -> None:
    """As `pending` by hand does: what failed begins again."""
    world.connection.execute("update search_outbox_events set status = 'pending' where status = 'failed'")


def test_a_query_that_fails_fails_its_fanout_with_the_remedy_and_not_the_writer(world: Fanning) -> None:
    world.write(articles=3)
    world.connection.execute("alter table article rename column author_id to by_whom")
    world.rename()
    world.connection.execute("insert into author values (9, 'not in its way')")
    world.project()
    failures = world.fanouts()
    assert [row.status for row in failures] == ["failed", "failed"]
    assert all("SQLSTATE 42703" in row.error and "replay" in row.error for row in failures)
    world.connection.execute("alter table article rename column by_whom to author_id")
    replay(world)
    world.settle()
    assert world.refreshed() == [1, 2, 3]
    assert world.wrong() == {}


def test_a_right_that_the_projector_lacks_is_named_and_a_replay_goes_on(world: Fanning, roles: Roles) -> None:
    world.write(articles=3)
    pool = Database(roles.url("projector"), size=2, application="test")
    pool.open()
    world.queue.stack.callback(pool.close)
    world.store.store = PostgresFanouts(pool)
    world.rename()
    world.project()
    error = failed(world).error
    assert "SQLSTATE 42501" in error
    assert "grant the projector's role SELECT" in error
    projector = sql.Identifier(roles.name("projector"))
    world.connection.execute(sql.SQL("grant select on article to {}").format(projector))
    replay(world)
    world.settle()
    assert world.refreshed() == [1, 2, 3]
    assert world.wrong() == {}


def test_a_replay_of_one_that_failed_on_its_way_begins_at_the_beginning(
    world: Fanning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.daemon.fanout.PAGE", 10)
    monkeypatch.setattr("outbox.daemon.fanout.MOST_OPEN", 10)
    world.write(articles=15)
    world.rename()
    world.worker.run()
    assert world.fanouts()[0].fanout_written == 10
    world.connection.execute("alter table article rename column author_id to by_whom")
    world.colleague()
    world.project()
    world.queue.make_due()
    world.project()
    assert failed(world).fanout_cursor is not None
    world.connection.execute("alter table article rename column by_whom to author_id")
    replay(world)
    assert world.fanouts()[0].fanout_cursor is None
    world.settle()
    first_page = sorted(range(1, 16), key=str)[:10]
    assert world.refreshed() == sorted([*range(1, 16), *first_page])


def test_ids_that_are_null_or_twice_are_refreshed_not_at_all_or_once(world: Fanning) -> None:
    world.connection.execute("create table note (id int primary key, author_id int, article_id int)")
    query = "select n.article_id from note n join note m using (author_id) where n.author_id = changed.id"
    attach(world.connection, "author", entity_type="article", via=query)
    world.write(articles=2)
    world.connection.execute("insert into note values (1, 1, 1), (2, 1, 1), (3, 1, null), (4, 1, 77)")
    world.rename()
    world.settle()
    assert world.refreshed() == [1, 1, 2, 77], "1 by both attachments"
    assert world.wrong() == {}


KEYED = """
create table line (tenant text, number int, place smallint, label text, primary key (tenant, number, place));
create table part (id uuid primary key default gen_random_uuid(), tenant text, number int, place smallint);
create or replace view search_documents as
    select 'part'::text as entity_type, p.id::text as entity_id, jsonb_build_object('label', l.label) as document
      from part p left join line l on (l.tenant, l.number, l.place) = (p.tenant, p.number, p.place)
"""
OF_LINE = "select id from part where tenant = changed.tenant and number = changed.number and place = changed.place"
ODD = ["plain", "it's", 'a "quoted" one', "back\\slash", "ünï", "{json}", "new\nline", "%s", ""]


def test_a_key_of_several_columns_with_odd_texts_finds_its_documents(world: Fanning) -> None:
    world.connection.execute("drop view search_documents")
    world.connection.execute(KEYED.replace("or replace ", "").encode())
    attach(world.connection, "part", entity_type="part", id_column="id")
    attach(world.connection, "line", entity_type="part", via=OF_LINE)
    world.connection.execute("insert into line select t, -1, 7, 'old' from unnest(%s::text[]) t", [ODD])
    world.connection.execute("insert into part (tenant, number, place) select tenant, number, place from line")
    world.connection.execute("insert into part (tenant) values ('plain'), (null)")
    world.settle()
    world.connection.execute("update line set label = 'new'")
    world.connection.execute("update line set number = 2 where tenant = 'plain'")
    world.settle()
    assert world.wrong() == {}
