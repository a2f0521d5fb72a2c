"""Documents whose routing comes from a joined table, on five shards: each stands in one place, whoever dies."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from outbox.config import load_settings
from outbox.policy.document import BATCH_BYTES
from outbox.policy.drift import Key
from outbox.policy.places import NotedPlace, left
from outbox.ports import BulkAction, Sink, WriteReport
from outbox.sink.client import connect
from outbox.sink.elastic import ElasticSink
from outbox.store.documents import ViewDocuments
from outbox.store.places import PostgresPlaces
from outbox.store.retention import PostgresRetention
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable

TABLES = """
create table author (id int primary key, tenant text not null, banned boolean not null default false);
create table article (id int primary key, author_id int not null references author, title text not null);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id, jsonb_build_object('title', a.title) as document,
           w.tenant as routing
      from article a join author w on w.id = a.author_id
     where not w.banned;
"""
NOWHERE = "http://127.0.0.1:1"  # nobody listens there
TENANTS = [f"tenant-{n}" for n in range(8)]


class Killed(BaseException):
    """kill -9: nothing of the process runs after it."""


class Hooked:
    """`before` and `after` run once, around the next request."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        before, self.before = self.before, None
        if before:
            before()
        report = self.sink.write(actions, deadline_seconds)
        after, self.after = self.after, None
        if after:
            after()
        return report

    def probe(self, target: str) -> Any:
        return self.sink.probe(target)


class Press:
    """Authors of eight tenants, and articles of theirs, each routed by its author's tenant."""

    def __init__(self, queue: EventTable, es: Elasticsearch, url: str, index: str) -> None:
        self.queue, self.es, self.index, self.db = queue, es, index, queue.connection
        self.db.execute(TABLES)
        for n, tenant in enumerate(TENANTS):
            self.db.execute("insert into author values (%s, %s)", [n, tenant])
        es.indices.delete(index=index, ignore_unavailable=True)
        es.indices.create(index=index, settings={"number_of_shards": 5, "number_of_replicas": 0})
        environment = {"DATABASE_URL": queue.url, "ELASTIC_URL": url, "ELASTIC_INDEX": index}
        self.elastic = connect(load_settings(environment).elastic)
        queue.stack.callback(self.elastic.close)
        self.worker, self.sink = self.a_worker()

    def a_worker(self) -> tuple[InProcess, Hooked]:
        sink = Hooked(ElasticSink(self.elastic))
        documents = ViewDocuments(self.queue.pool(), "search_documents", batch_bytes=BATCH_BYTES)
        return InProcess(Parts(self.queue.store(), sink, documents, index_of=lambda _: self.index)), sink

    def write(self, *ids: int, author: int = 0) -> None:
        for id in ids:
            self.db.execute("insert into article values (%s, %s, 'x')", [id, author])
            self.ask(id)

    def ask(self, *ids: int) -> None:
        for id in ids:
            self.queue.produce(str(id), "refresh")

    def move(self, id: int, author: int) -> None:
        self.db.execute("update article set author_id = %s, title = title || 'x' where id = %s", [author, id])
        self.ask(id)

    def project(self) -> None:
        while self.worker.run() is not None:
            pass

    def held(self) -> list[tuple[str, str]]:
        """(id, routing) of all that a search finds."""
        self.es.indices.refresh(index=self.index)
        hits = self.es.search(index=self.index, size=1000, query={"match_all": {}})["hits"]["hits"]
        return sorted((hit["_id"], hit["_routing"]) for hit in hits)

    def wanted(self) -> list[tuple[str, str]]:
        rows = self.db.execute("select 'article:' || entity_id, routing from search_documents").fetchall()
        return sorted((id, routing) for id, routing in rows)

    def reclaim(self) -> None:
        self.queue.expire()
        self.queue.reclaims().step(lambda _: False)

    def go_away(self) -> None:
        """The search server, for the worker in use."""
        nobody = connect(load_settings({"DATABASE_URL": self.queue.url, "ELASTIC_URL": NOWHERE}).elastic)
        self.queue.stack.callback(nobody.close)
        self.sink.sink = ElasticSink(nobody)

    def forget_deletes(self) -> None:
        """As after `index.gc_deletes`."""
        self.es.indices.put_settings(index=self.index, settings={"gc_deletes": "0s"})


@pytest.fixture
def press(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> Press:
    return Press(queue, es, elastic_url, index)


def test_articles_of_a_banned_author_are_not_found_any_more(press: Press) -> None:
    """B3: their events know no routing, and the view does not have them any more."""
    press.write(*range(20), author=3)
    press.write(*range(20, 30), author=4)
    press.project()
    assert len(press.held()) == 30
    press.db.execute("update author set banned = true where id = 3")
    press.ask(*range(20))
    press.project()
    assert press.held() == press.wanted()
    assert len(press.held()) == 10


def test_an_article_that_changes_its_author_stands_under_one_tenant(press: Press) -> None:
    press.write(*range(16))
    press.project()
    for id in range(16):
        press.move(id, author=id % len(TENANTS))
    press.project()
    assert press.held() == press.wanted()


def test_a_worker_that_dies_between_its_write_and_its_settle_leaves_no_second_document(press: Press) -> None:
    """Then the article moves on: whoever takes the event over must know where the dead one wrote."""
    press.write(1)
    press.project()
    press.move(1, author=1)

    def die() -> None:
        raise Killed

    press.sink.after = die
    with pytest.raises(Killed):
        press.worker.run()
    press.reclaim()
    press.move(1, author=2)
    press.worker, press.sink = press.a_worker()
    press.project()
    assert press.held() == press.wanted() == [("article:1", TENANTS[2])]


def test_deletes_of_routed_documents_wait_while_the_search_server_does_not_answer(press: Press) -> None:
    """In one batch with a document that is there: the request that fails is not theirs."""
    press.write(1, 2)
    press.project()
    press.db.execute("delete from article where id = 1")
    press.ask(1, 2)
    press.go_away()
    press.worker.run()
    assert press.queue.counts() == {"done": 2, "pending": 2}
    press.queue.make_due()
    press.worker, press.sink = press.a_worker()
    press.project()
    assert press.held() == press.wanted() == [("article:2", TENANTS[0])]


@pytest.mark.parametrize("then", ["moved on", "gone"])
def test_a_worker_that_slept_before_its_request_removes_what_it_wrote_too_late(press: Press, then: str) -> None:
    """Its rows are someone else's, the article stands elsewhere or nowhere, and the search server has forgotten."""
    press.write(1)
    press.project()
    press.move(1, author=1)
    other, _ = press.a_worker()

    def sleep() -> None:
        press.reclaim()
        if then == "gone":
            press.db.execute("delete from article")
            press.ask(1)
        else:
            press.move(1, author=2)
        while other.run() is not None:
            pass
        press.forget_deletes()
        press.worker.clock.passes(120)

    press.sink.before = sleep
    press.worker.run()
    press.project()
    assert press.held() == press.wanted()
    assert len(press.held()) == (0 if then == "gone" else 1)


@pytest.mark.parametrize("fails", ["second round", "delete of the old place"])
def test_a_late_write_that_cannot_be_brought_right_is_owed_to_a_new_event(press: Press, fails: str) -> None:
    """What was gone is back, the search server is unreachable, and the rows are done by someone else."""
    press.write(1)
    if fails == "delete of the old place":
        press.project()
        press.move(1, author=1)
    done = 1 + press.queue.value("select count(*) from search_outbox_events")
    other, _ = press.a_worker()

    def sleep() -> None:
        press.reclaim()
        press.db.execute("delete from article")
        press.ask(1)
        while other.run() is not None:
            pass
        assert press.queue.counts() == {"done": done}
        press.forget_deletes()
        press.worker.clock.passes(120)

    press.sink.before, press.sink.after = sleep, press.go_away
    press.worker.run()
    assert len(press.held()) == 1, "it brought back what was gone"
    assert press.queue.counts() == {"done": done, "pending": 1}
    press.worker, press.sink = press.a_worker()
    press.project()
    assert press.held() == press.wanted() == []


def test_a_worker_that_slept_and_then_died_is_cleaned_up_after(press: Press) -> None:
    """Its write came after the other's delete of that place. The place is still noted: nobody has forgotten it."""
    press.write(1)
    press.project()
    press.move(1, author=1)
    other, _ = press.a_worker()

    def sleep() -> None:
        press.move(1, author=2)
        other.run()
        press.forget_deletes()

    def die() -> None:
        raise Killed

    press.sink.before, press.sink.after = sleep, die
    with pytest.raises(Killed):
        press.worker.run()
    press.reclaim()
    press.worker, press.sink = press.a_worker()
    press.project()
    assert press.held() == press.wanted() == [("article:1", TENANTS[2])]


def test_two_workers_that_move_an_article_at_once_leave_it_in_one_place(press: Press) -> None:
    press.write(1)
    press.project()
    other, _ = press.a_worker()
    for author in range(1, len(TENANTS)):
        press.move(1, author=author)

        def overtaken(author: int = author) -> None:
            press.move(1, author=(author + 3) % len(TENANTS))
            other.run()

        press.sink.before = overtaken
        press.worker.run()
    press.project()
    assert press.held() == press.wanted()


def test_a_place_is_noted_before_the_request_and_forgotten_an_hour_after_its_delete(press: Press) -> None:
    places, key = PostgresPlaces(press.queue.pool()), Key("article", "1")
    old = PostgresRetention(press.queue.pool())
    seen: list[set[str]] = []
    press.sink.before = lambda: seen.append({place.routing for place in places.of([key])[key]})
    press.write(1)
    press.project()
    press.move(1, author=1)
    press.sink.before = lambda: seen.append({place.routing for place in places.of([key])[key]})
    press.project()
    assert seen == [{TENANTS[0]}, {TENANTS[0], TENANTS[1]}]
    assert old.forget("forget_places", timedelta(hours=1), 100) == 0
    press.db.execute("update search_outbox_places set cleared_at = cleared_at - interval '2 hours'")
    assert old.forget("forget_places", timedelta(hours=1), 100) == 1
    assert [place.routing for place in places.of([key])[key]] == [TENANTS[1]]


def test_the_document_leaves_every_place_but_the_newest_under_that_places_own_number() -> None:
    key = Key("article", "1")
    rows = [NotedPlace(key, False, "a", 5), NotedPlace(key, True, "", 9), NotedPlace(key, False, "b", 7)]
    assert left(rows) == [rows[0], rows[2]]
