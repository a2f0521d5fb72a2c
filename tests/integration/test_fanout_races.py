"""Interleavings of a change and of the link that leads from it to a document: after both commits, in either order, each
document is what the view says. A real daemon projects what is committed so far between the two commits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg import IsolationLevel, sql

from tests.fixtures import hops
from tests.fixtures.commands import Outbox
from tests.fixtures.hops import differing
from tests.fixtures.overlapping import open_events, statuses
from tests.fixtures.processes import StartProcess
from tests.fixtures.roles import Roles
from tests.fixtures.waiting import eventually

ROWS = """
insert into country select n, 'country ' || n from generate_series(1, 4) n;
insert into author select n, n, 'author ' || n from generate_series(1, 4) n;
insert into article select n, (n - 1) / 2 + 1, 'article ' || n from generate_series(1, 4) n;
"""
Connection = psycopg.Connection[Any]


@dataclass
class Hops:
    """Articles 1 and 2 of author 1 in country 1, 3 and 4 of author 2 in country 2; authors and countries 3 and 4."""

    connection: Connection
    es: Elasticsearch
    index: str
    first: Connection
    second: Connection

    def projected(self) -> None:
        eventually(lambda: not open_events(self.connection), what="every event settled")

    def true(self) -> None:
        self.projected()
        assert differing(self.connection, self.es, self.index) == {}
        assert statuses(self.connection) == {"done"}

    def document(self, name: str) -> Any:
        return self.es.get(index=self.index, id=name)["_source"]


@pytest.fixture
def world(
    database: str,
    connection: Connection,
    es: Elasticsearch,
    index: str,
    outbox_here: Outbox,
    start_daemon: StartProcess,
) -> Iterator[Hops]:
    connection.execute(hops.TABLES)
    hops.attach_all(outbox_here)
    connection.execute(ROWS)
    start_daemon(OUTBOX_POLL_INTERVAL_SECONDS="0.01").wait_for_http("/readyz")
    with psycopg.connect(database) as first, psycopg.connect(database) as second:
        world = Hops(connection, es, index, first, second)
        world.true()
        yield world


RENAME_COUNTRY = "update country set name = 'Atlantis' where id = 3"
LINKS = {
    "an article moves to an author of the country": "update article set author_id = 3 where id = 1",
    "the author moves to the country": "update author set country_id = 3 where id = 1",
    "an author of the country is made, with an article": (
        "insert into author values (5, 3, 'Eve'); insert into article values (5, 5, 'x')"
    ),
}


@pytest.mark.parametrize("renamed_last", [True, False], ids=["the rename commits last", "the link commits last"])
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_a_rename_reaches_documents_whose_link_to_it_was_not_visible_to_its_writer(
    world: Hops, link: str, renamed_last: bool
) -> None:
    world.first.execute(RENAME_COUNTRY)
    world.second.execute(link.encode())
    early, late = (world.second, world.first) if renamed_last else (world.first, world.second)
    early.commit()
    world.projected()
    late.commit()
    world.true()
    assert "Atlantis" in {world.document(f"article:{n}")["country"] for (n,) in articles(world)}


def articles(world: Hops) -> list[tuple[int]]:
    return world.connection.execute("select id from article").fetchall()


@pytest.mark.parametrize("nearest_last", [True, False], ids=["nearest link last", "farther link last"])
@pytest.mark.parametrize("to", [4, None], ids=["moved", "removed"])
def test_a_document_loses_what_it_had_over_two_links_that_both_change(
    world: Hops, nearest_last: bool, to: int | None
) -> None:
    """Country 3 gets author 1 and never keeps article 1, which leaves that author at the same time."""
    world.first.execute("update author set country_id = 3 where id = 1")
    world.second.execute("update article set author_id = %s where id = 1", [to])
    early, late = (world.second, world.first) if nearest_last else (world.first, world.second)
    early.commit()
    world.projected()
    late.commit()
    world.true()
    assert world.document("country:3")["articles"] == ["article 2"]


def test_a_change_of_the_key_refreshes_by_the_old_and_by_the_new_one(world: Hops) -> None:
    """`article --via` over its author: both countries, whoever reads the row has only the new key."""
    world.connection.execute("update article set author_id = 2 where id = 1")
    world.true()
    assert world.document("country:1")["articles"] == ["article 2"]
    assert world.document("country:2")["articles"] == ["article 1", "article 3", "article 4"]
    world.connection.execute("delete from article where id in (1, 2)")
    world.true()
    assert world.document("country:1")["articles"] is None


def test_a_renamer_with_repeatable_read_needs_to_see_no_link(world: Hops) -> None:
    world.first.isolation_level = IsolationLevel.REPEATABLE_READ
    world.first.execute("select from article")
    world.second.execute("update article set author_id = 3 where id = 1")
    world.second.commit()
    world.projected()
    world.first.execute(RENAME_COUNTRY)
    world.first.execute("update author set name = 'Ada' where id = 3")
    world.first.commit()
    world.true()
    assert world.document("article:1") == {"title": "article 1", "author": "Ada", "country": "Atlantis"}


def test_a_writer_needs_no_rights_on_the_tables_that_the_query_reads(world: Hops, roles: Roles) -> None:
    producer = sql.Identifier(roles.name("producer"))
    world.connection.execute(sql.SQL("grant select, update on country to {}").format(producer))
    with roles.connect("producer") as writer:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute("select from article")
        writer.execute("update country set name = 'Atlantis' where id = 1")
    world.true()
    assert world.document("article:1")["country"] == "Atlantis"
