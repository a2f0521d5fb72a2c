"""Interleavings of a change and of the link that leads from it to a document: after both commits, in either order, each
document is what the view says. A projector works off what is committed so far between the two commits."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg import IsolationLevel

from outbox.store.attach.attach import attach
from tests.fixtures import hops
from tests.fixtures.fanning import Fanning
from tests.fixtures.queue import EventTable

ROWS = """
insert into country select n, 'country ' || n from generate_series(1, 4) n;
insert into author select n, n, 'author ' || n from generate_series(1, 4) n;
insert into article select n, (n - 1) / 2 + 1, 'article ' || n from generate_series(1, 4) n;
"""
Connection = psycopg.Connection[Any]


class Hops(Fanning):
    """Articles 1 and 2 of author 1 in country 1, 3 and 4 of author 2 in country 2; authors and countries 3 and 4."""

    first: Connection
    second: Connection

    def _prepare(self) -> None:
        self.connection.execute(hops.TABLES)
        for table, *words in hops.WAYS:
            told = dict(zip(words[::2], words[1::2], strict=True))
            id_column, via = told.get("--id"), told.get("--via")
            attach(self.connection, table, entity_type=told["--type"], id_column=id_column, via=via)
        self.connection.execute(ROWS)

    def true(self) -> None:
        self.settle()
        assert self.wrong() == {}
        assert set(self.queue.counts()) == {"done"}

    def document(self, name: str) -> Any:
        return self.source(name)


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> Iterator[Hops]:
    world = Hops(queue, es, elastic_url, index)
    with psycopg.connect(queue.url) as world.first, psycopg.connect(queue.url) as world.second:
        world.true()
        yield world


RENAME_COUNTRY = "update country set name = 'Atlantis' where id = 3"
MOVE = "update article set author_id = 3 where id = 1"
MADE = "insert into author values (5, 3, 'Eve'); insert into article values (5, 5, 'x')"


@pytest.mark.parametrize(("link", "renamed_last"), [(MOVE, True), (MOVE, False), (MADE, True)])
def test_a_rename_reaches_documents_whose_link_to_it_was_not_visible_to_its_writer(
    world: Hops, link: str, renamed_last: bool
) -> None:
    world.first.execute(RENAME_COUNTRY)
    world.second.execute(link.encode())
    early, late = (world.second, world.first) if renamed_last else (world.first, world.second)
    early.commit()
    world.settle()
    late.commit()
    world.true()
    assert "Atlantis" in {world.document(f"article:{n}")["country"] for (n,) in articles(world)}


def articles(world: Hops) -> list[tuple[int]]:
    return world.connection.execute("select id from article").fetchall()


@pytest.mark.parametrize(("to", "nearest_last"), [(4, True), (None, False)])
def test_a_document_loses_what_it_had_over_two_links_that_both_change(
    world: Hops, nearest_last: bool, to: int | None
) -> None:
    """Country 3 gets author 1 and never keeps article 1, which leaves that author at the same time."""
    world.first.execute("update author set country_id = 3 where id = 1")
    world.second.execute("update article set author_id = %s where id = 1", [to])
    early, late = (world.second, world.first) if nearest_last else (world.first, world.second)
    early.commit()
    world.settle()
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
    world.settle()
    world.first.execute(RENAME_COUNTRY)
    world.first.execute("update author set name = 'Ada' where id = 3")
    world.first.commit()
    world.true()
    assert world.document("article:1") == {"title": "article 1", "author": "Ada", "country": "Atlantis"}
