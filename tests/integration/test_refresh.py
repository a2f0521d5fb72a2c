"""Refreshes: a document that joins tables becomes what the view says now, whatever the order of commits and writes."""

import json
import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox.facts import VersionAhead, VersionRaised
from outbox.policy.document import BATCH_BYTES
from outbox.policy.outcome import Failure, Reason
from outbox.ports import BulkAction, WriteReport
from outbox.store.documents import ViewDocuments
from tests.fixtures.events import Time
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import Hooked, MemorySink
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

TABLES = """
create table article (id bigint primary key, title text not null, shelf text);
create table comment (id bigint generated always as identity primary key, article_id bigint not null, text text);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           jsonb_build_object('title', a.title, 'comments',
                              (select count(*) from comment c where c.article_id = a.id)) as document
      from article a;
"""
ROUTED = """
drop view search_documents;
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, jsonb_build_object('title', title) as document,
           shelf as routing
      from article;
"""
HELD_UP = """
create function held_up() returns int language plpgsql as $$
begin
    if current_setting('application_name') like 'slow%' then
        perform pg_advisory_xact_lock_shared(19);
    end if;
    return 0;
end $$;
create or replace view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           jsonb_build_object('title', a.title, 'comments',
                              held_up() + (select count(*) from comment c where c.article_id = a.id)) as document
      from article a;
"""


class Blog:
    """Articles with comments, a view over both, and workers with one sink."""

    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.db = queue.connection
        self.sink = Hooked()
        self.clock = Time()
        self.worker = self.new_worker()

    def new_worker(self, sink: MemorySink | None = None, pool: str = "test") -> InProcess:
        database = self.queue.pool(pool)
        documents = ViewDocuments(database, "search_documents", batch_bytes=BATCH_BYTES, clock=self.clock)
        store = self.queue.store()
        return InProcess(Parts(store, sink or self.sink, documents=documents, clock=self.clock))

    def add(self, id: int = 1, title: str = "one", comments: int = 0) -> str:
        self.db.execute("insert into article (id, title) values (%s, %s)", [id, title])
        for _ in range(comments):
            self.comment(id)
        return str(id)

    def a_colleague(self) -> InProcess:
        """Another worker with the same index, and with none of the first one's hooks."""
        return self.new_worker(MemorySink(self.sink.documents, self.sink.tombstones))

    def comment(self, article: int | str = 1) -> None:
        self.db.execute("insert into comment (article_id, text) values (%s, 'x')", [article])

    def refresh(self, id: int | str = 1, **columns: Any) -> UUID:
        return self.queue.produce(str(id), op="refresh", **columns)

    def document(self, id: int | str = 1) -> Any:
        found = self.sink.documents.get(("articles", f"article:{id}"))
        return None if found is None else json.loads(found[1])

    def version(self, id: int | str = 1) -> int:
        return self.sink.documents["articles", f"article:{id}"][0]

    def last_version(self) -> int:
        return int(self.queue.value("select last_value from search_outbox_version"))


@pytest.fixture
def blog(queue: EventTable) -> Blog:
    queue.connection.execute(TABLES)
    return Blog(queue)


def test_a_refresh_writes_what_the_view_says_under_a_version_that_was_drawn_after_its_claim(blog: Blog) -> None:
    blog.add(comments=2)
    id = blog.refresh()
    written_as = blog.queue.row(id).event_version
    blog.worker.run()
    assert blog.document() == {"title": "one", "comments": 2}
    assert blog.version() > written_as
    row = blog.queue.row(id)
    assert (row.status, row.op, row.read_version, row.read_found) == ("done", "refresh", blog.version(), True)
    assert row.event_version == written_as


def test_a_refresh_of_what_is_gone_is_a_delete_and_its_row_says_so(blog: Blog) -> None:
    blog.add()
    blog.add(2)
    blog.refresh()
    blog.worker.run()
    blog.db.execute("delete from article where id = 1")
    id, other = blog.refresh(), blog.refresh(2)
    blog.worker.run()
    assert blog.document() is None
    row = blog.queue.row(id)
    assert (row.status, row.op, row.read_found) == ("done", "refresh", False)
    assert row.read_version == blog.sink.tombstones["articles", "article:1"]
    assert blog.queue.row(other).read_found is True


def test_many_refreshes_of_one_document_in_a_batch_are_one(blog: Blog) -> None:
    blog.add(comments=3)
    ids = [blog.refresh() for _ in range(5)]
    blog.worker.run()
    assert [len(actions) for actions in blog.sink.sent] == [1]
    assert blog.queue.counts() == {"done": 5}
    assert {blog.queue.row(id).read_version for id in ids} == {blog.version()}


def test_the_version_is_drawn_after_the_claim_and_before_the_read_by_a_statement_of_its_own(blog: Blog) -> None:
    """A change that is committed after the draw may be missed by nobody: whoever announces it draws a higher one."""
    blog.add()
    blog.refresh()
    real: Any = blog.worker.projector.documents
    drawn: list[int] = []

    class Spy:
        def draw(self) -> int:
            drawn.append(real.draw())
            blog.comment()  # committed between draw and read
            return drawn[-1]

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    blog.worker.projector.documents = Spy()
    claimed = blog.worker.claim()
    at_claim = blog.last_version()
    blog.worker.projector.project(claimed, 0)
    assert at_claim < drawn[0]
    assert drawn == [blog.version()]
    assert blog.document() == {"title": "one", "comments": 1}


def test_two_transactions_that_commit_in_the_other_order_than_they_were_written_lose_no_comment(blog: Blog) -> None:
    """The second is projected before the first is committed, from a view that lacks the first one's comment."""
    blog.add()
    with psycopg.connect(blog.queue.url) as first, psycopg.connect(blog.queue.url) as second:
        for transaction in (first, second):
            transaction.execute("insert into comment (article_id) values (1)")
            transaction.execute("select outbox_refresh('article', '1')")
        second.commit()
        blog.worker.run()
        assert blog.document() == {"title": "one", "comments": 1}
        first.commit()
    blog.worker.run()
    assert blog.document() == {"title": "one", "comments": 2}
    assert blog.queue.counts() == {"done": 2}


def test_whoever_is_overtaken_right_after_its_read_has_the_lower_version(blog: Blog) -> None:
    """A version that is drawn after the read would be above that of a colleague who has read more."""
    blog.add()
    blog.refresh()
    real: Any = blog.worker.projector.documents
    overtaken: list[bool] = []

    class Spy:
        def load(self, events: Any, **options: Any) -> Any:
            found = real.load(events, **options)
            if not overtaken:
                overtaken.append(True)
                blog.comment()
                blog.refresh()
                blog.a_colleague().run()
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    blog.worker.projector.documents = Spy()
    blog.worker.run()
    assert overtaken
    assert blog.document() == {"title": "one", "comments": 1}
    assert blog.queue.counts() == {"done": 2}


def test_whoever_is_overtaken_in_the_middle_of_its_read_has_the_lower_version(blog: Blog) -> None:
    """Its snapshot is taken, its rows are not read yet. A version that the same statement draws, after them, would be
    above that of a colleague who has read more."""
    blog.add()
    blog.refresh()
    blog.worker.run()  # its type is declared: nobody asks the view for it any more
    blog.db.execute(HELD_UP)
    blog.refresh()
    blog.db.execute("select pg_advisory_lock(19)")
    thread = threading.Thread(target=blog.new_worker(pool="slow").run)
    thread.start()
    try:
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and objid = 19 and not granted"
        eventually(lambda: blog.queue.value(waiting), what="a read that is held up")
        blog.comment()
        blog.refresh()
        blog.a_colleague().run()
        assert blog.document() == {"title": "one", "comments": 1}
    finally:
        blog.db.execute("select pg_advisory_unlock(19)")
        thread.join(PATIENCE_SECONDS)
    assert blog.document() == {"title": "one", "comments": 1}
    assert blog.queue.counts() == {"done": 3}


def test_a_retry_draws_and_reads_again(blog: Blog) -> None:
    blog.add()
    id = blog.refresh()
    blog.sink.away = Failure(Reason.TIMEOUT, "no answer", whole=True)
    blog.worker.run()
    assert blog.queue.row(id).status == "pending"
    blog.sink.away = None
    blog.comment()
    blog.queue.make_due()
    blog.worker.run()
    versions = [actions[0].version for actions in blog.sink.sent]
    assert versions == sorted(set(versions))
    assert blog.document() == {"title": "one", "comments": 1}


def test_a_delete_of_a_type_that_the_view_keeps_means_what_the_view_says(blog: Blog) -> None:
    """An upsert may have drawn a higher version than the delete's before the delete was committed; and the entity may
    be there again. With a version of its own at its claim both end right."""
    blog.add()
    blog.add(2)
    blog.refresh()
    blog.refresh(2)
    blog.worker.run()
    blog.db.execute("delete from article where id = 1")
    gone = blog.queue.produce("1", op="delete", event_version=1)  # below what the document has
    again = blog.queue.produce("2", op="delete", event_version=10**6)  # deleted and made again since
    blog.worker.run()
    assert blog.document() is None
    assert blog.document(2) == {"title": "one", "comments": 0}
    assert [blog.queue.row(id).status for id in (gone, again)] == ["done", "done"]


def test_articles_that_go_with_their_comments_do_not_set_off_the_brake_either(blog: Blog) -> None:
    """The comments' triggers write refreshes, the articles' own one a delete: in one batch, or in two."""
    blog.add(1000)
    for id in range(60):
        blog.refresh(id)
    for id in range(60):
        blog.queue.produce(str(id), op="delete")
    blog.refresh(1000)
    blog.worker.run(40)
    assert set(blog.queue.counts()) == {"done", "pending"}
    while blog.worker.run(500):
        pass
    assert blog.queue.counts() == {"done": 121}


def test_where_the_view_has_no_routing_an_events_own_one_says_where_a_document_was(blog: Blog) -> None:
    blog.add()
    blog.refresh()
    blog.worker.run()
    blog.queue.produce("1", op="delete", routing="old", event_version=blog.version())
    blog.worker.run()
    assert [[(a.routing, a.body is None) for a in actions] for actions in blog.sink.sent[1:]] == [
        [(None, False)],
        [("old", True)],
    ]
    assert blog.document() == {"title": "one", "comments": 0}  # also on one shard: below the number of the write


@pytest.mark.parametrize("op", ["refresh", "upsert"])
def test_the_last_entity_of_a_type_can_go_by_a_delete_whose_worker_has_never_seen_the_type(blog: Blog, op: str) -> None:
    """The delete was written before the last document was read, so its own version would be refused."""
    blog.add()
    with psycopg.connect(blog.queue.url) as transaction:
        transaction.execute("delete from article")
        transaction.execute("select outbox_enqueue('article', '1', 'delete')")
        blog.queue.produce("1", op=op, payload=None)
        blog.worker.run()
        assert blog.document() == {"title": "one", "comments": 0}
        transaction.commit()
    blog.new_worker().run()
    assert blog.queue.counts() == {"done": 2}
    assert blog.document() is None


def test_a_refresh_with_a_payload_is_refused_by_name(blog: Blog) -> None:
    blog.add()
    id, neighbour = blog.refresh(payload="{}"), blog.refresh()
    blog.worker.run()
    row = blog.queue.row(id)
    assert (row.status, row.error_code) == ("failed", "OUTBOX_PAYLOAD_UNSUPPORTED")
    assert blog.queue.row(neighbour).status == "done"


# A worker that slept


def test_a_worker_that_slept_between_its_read_and_its_write_reads_and_writes_once_more(blog: Blog) -> None:
    """Its article is deleted meanwhile, and Elasticsearch has forgotten that: what it wrote late brought it back."""
    blog.add()
    blog.add(2)
    blog.refresh()
    other = blog.a_colleague()

    def sleep() -> None:
        blog.db.execute("delete from article where id = 1")
        blog.queue.expire()
        blog.queue.reclaims().step(lambda _: False)
        blog.refresh()
        assert other.run() is not None
        blog.sink.tombstones.clear()
        blog.clock.passes(120)

    blog.sink.before = sleep
    blog.worker.run()
    assert blog.document() is None
    assert blog.queue.counts() == {"done": 2}


def test_a_slow_exchange_is_repeated_three_times_at_most(blog: Blog) -> None:
    blog.add()
    id = blog.refresh()
    blog.worker.leases.max_processing_seconds = 10_000.0

    def write(actions: Sequence[BulkAction], deadline: float, real: Any = blog.sink.write) -> WriteReport:
        blog.clock.passes(31)
        answer: WriteReport = real(actions, deadline)
        return answer

    blog.worker.projector.sink = type("Slow", (), {"write": staticmethod(write), "probe": blog.sink.probe})()
    blog.worker.run()
    assert len(blog.sink.sent) == 4
    assert blog.queue.row(id).status == "pending"


# The index ahead of the database


def test_an_index_that_is_ahead_of_the_database_is_caught_up_with_and_reported(blog: Blog) -> None:
    """A database that was restored gives out versions again that the index has already."""
    blog.sink.documents["articles", "article:1"] = (1_000_000, b'{"title": "from before"}')
    blog.add(title="now")
    id = blog.refresh()
    before = blog.last_version()
    blog.worker.run()
    assert blog.document() == {"title": "now", "comments": 0}
    assert blog.version() > 1_000_000
    assert blog.queue.row(id).read_version == blog.version()
    (raised,) = blog.worker.of(VersionRaised)
    assert before < raised.was < raised.now == 1_000_000
    (ahead,) = blog.worker.of(VersionAhead)
    assert (ahead.entity_id, ahead.current) == ("1", 1_000_000)
    audited = blog.queue.value("select detail from search_outbox_audit where action = 'VERSION_RAISED'")
    assert audited == {"was": raised.was, "now": 1_000_000}


def test_a_version_above_2_62_is_never_followed_and_named_with_its_remedy(blog: Blog) -> None:
    blog.sink.documents["articles", "article:1"] = (2**62 + 1, b"{}")
    blog.add()
    blog.add(2)
    id, neighbour = blog.refresh(), blog.refresh(2)
    blog.worker.run()
    row = blog.queue.row(id)
    assert (row.status, row.error_code) == ("failed", "OUTBOX_PRECONDITION_FAILED")
    assert "outbox rebuild" in row.error
    assert blog.last_version() < 1_000
    assert blog.queue.row(neighbour).status == "done"


def test_the_sequence_is_never_moved_back(blog: Blog) -> None:
    blog.db.execute("select setval('search_outbox_version', 5000)")
    assert blog.queue.store().raise_version(4000) is None
    assert blog.db.execute("select search_outbox_raise_version(4000)").fetchone() == (5000,)
    assert blog.last_version() == 5000
    with pytest.raises(psycopg.errors.NumericValueOutOfRange, match="2\\^62"):
        blog.db.execute("select search_outbox_raise_version(%s)", [2**62 + 1])


# Routing by the view


def test_a_document_that_moved_leaves_the_place_that_its_event_names(blog: Blog) -> None:
    blog.db.execute(ROUTED)
    blog.add(title="moved")
    blog.db.execute("update article set shelf = 'b'")
    blog.refresh(routing="a")
    blog.worker.run()
    written, left = [[(a.routing, a.body is None, a.version) for a in actions] for actions in blog.sink.sent]
    drawn = blog.last_version()
    assert (written, left) == ([("b", False, drawn)], [("a", True, drawn - 1)])
    assert blog.document() == {"title": "moved"}  # also where both places are one shard, as in this sink


def test_what_is_gone_is_deleted_where_the_event_says_that_it_was(blog: Blog) -> None:
    blog.db.execute(ROUTED)
    blog.add(2)
    blog.refresh(1, routing="a")
    blog.worker.run()
    (actions,) = blog.sink.sent
    assert {(action.routing, action.body) for action in actions} == {("a", None), (None, None)}


def test_a_document_whose_old_place_cannot_be_cleared_is_tried_again(blog: Blog) -> None:
    blog.db.execute(ROUTED)
    blog.add()
    id = blog.refresh(routing="a")
    full = Failure(Reason.ES_429, "busy")
    blog.sink.refuse = lambda action: full if action.body is None else None
    blog.worker.run()
    row = blog.queue.row(id)
    assert (row.status, row.error_reason) == ("pending", "es_429")


def test_large_documents_are_read_again_after_the_draw_and_keep_its_version(blog: Blog) -> None:
    for id in range(3):
        blog.add(id, title="y" * 200_000)
    blog.worker.parts.portion_bytes = blog.worker.projector.portion_bytes = 300_000
    for id in range(3):
        blog.refresh(id)
    blog.worker.run()
    assert len(blog.sink.sent) == 3
    assert len({blog.version(id) for id in range(3)}) == 1
    assert blog.queue.counts() == {"done": 3}


# Interfaces


@pytest.mark.parametrize("more", ["payload => '{}'", "version => 3"])
def test_a_refresh_takes_neither_payload_nor_version(blog: Blog, more: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="neither payload nor version"):
        blog.queue.value(f"select outbox_enqueue('article', '1', 'refresh', {more})")
