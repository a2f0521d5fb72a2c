"""The rules of a fan-out on a real database: pages, their cursor and tokens, merging, and whose queries are run."""

from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox.ops.doctor.documents import attached
from outbox.policy.event import Event
from outbox.ports import Level
from outbox.store.attach.attach import attach, detach
from outbox.store.attach.installed import read_facts
from outbox.store.documents import ViewDocuments
from outbox.store.fanouts import PostgresFanouts
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink

PAGE, MOST_OPEN = 100, 200  # a twentieth of what they are
VIA = "select id from articles where author_id = changed.id"
TABLES = """
create table authors (id int primary key, name text);
create table articles (id int primary key, author_id int);
create index on articles (author_id);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id, json_build_object('name', u.name) as document
      from articles a join authors u on u.id = a.author_id;
insert into authors values (1, 'Ada'), (2, 'Bo');
"""


class Fanned(NamedTuple):
    status: str
    cursor: str | None
    written: int | None
    error: str | None


class Shop:
    """Authors and their articles; fan-outs are written by the triggers that `attach` made."""

    def __init__(self, queue: EventTable) -> None:
        self.queue, self.db = queue, queue.connection
        self.db.execute(TABLES)
        attach(self.db, "articles", entity_type="article", id_column="id")
        attach(self.db, "authors", entity_type="article", via=VIA)
        self.worker = self.a_worker()

    def a_worker(self) -> InProcess:
        documents = ViewDocuments(self.queue.pool(), "search_documents", batch_bytes=8_000_000)
        return InProcess(Parts(self.queue.store(), MemorySink(), documents))

    def write(self, first: int, last: int, author: int) -> None:
        """Articles whose own events are forgotten."""
        self.db.execute("insert into articles select n, %s from generate_series(%s::int, %s) n", [author, first, last])
        self.forget()

    def forget(self, which: str = "true") -> None:
        self.db.execute(f"delete from search_outbox_events where {which}".encode())

    def write_linked(self, id: int, author: int) -> None:
        """One article whose own event is read, and forgotten, before what comes next."""
        self.db.execute("insert into articles values (%s, %s)", [id, author])
        self.forget(f"entity_id = '{id}'")

    def no_room(self, but_for: int = 0) -> None:
        """So many refreshes of another fan-out are open, and due tomorrow."""
        self.db.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, fanout_id, next_retry_at)"
            " select 'article', '0', 'refresh', gen_random_uuid(), now() + interval '1 day'"
            "   from generate_series(1, %s)",
            [MOST_OPEN - but_for],
        )

    def rename(self, *authors: int) -> None:
        for author in authors:
            self.db.execute("update authors set name = name || 'x' where id = %s", [author])

    def project(self) -> None:
        while self.worker.run() is not None:
            pass

    def due(self) -> None:
        self.db.execute("update search_outbox_events set next_retry_at = now() where next_retry_at is not null")

    def fanouts(self) -> list[Fanned]:
        columns = "status, fanout_cursor, fanout_written, error"
        rows = self.db.execute(f"select {columns} from search_outbox_events where op = 'fanout' order by seq".encode())
        return [Fanned(*row) for row in rows.fetchall()]

    def refreshed(self) -> list[str]:
        rows = self.db.execute("select entity_id from search_outbox_events where op = 'refresh' order by seq")
        return [id for (id,) in rows.fetchall()]

    def claimed(self) -> tuple[PostgresFanouts, UUID, list[Event]]:
        claimed = self.worker.claim()
        return PostgresFanouts(self.queue.pool()), claimed.token, list(claimed.events)


@pytest.fixture
def shop(queue: EventTable, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr("outbox.daemon.fanout.PAGE", PAGE)
    monkeypatch.setattr("outbox.daemon.fanout.MOST_OPEN", MOST_OPEN)
    return Shop(queue)


def test_what_was_linked_before_the_commit_is_found_after_it(shop: Shop) -> None:
    """The race: the writer cannot see the link yet, and what the link's own event read is the old name."""
    shop.write(1, 1, author=2)
    with psycopg.connect(shop.queue.url) as renamer:
        renamer.execute("update authors set name = 'new' where id = 1")
        shop.db.execute("update articles set author_id = 1 where id = 1")
        shop.project()
        renamer.commit()
    shop.project()
    assert shop.refreshed() == ["1", "1"]
    assert shop.fanouts() == [Fanned("done", "1", 1, None)]


def test_what_one_worker_has_found_is_worth_nothing_once_another_has_gone_on(shop: Shop) -> None:
    """The second worker asked anew, also for a later change of the key, whose documents the first has never seen."""
    shop.write(1, MOST_OPEN + PAGE, author=1)
    shop.rename(1)
    shop.no_room()
    shop.worker.run(1)
    assert shop.refreshed() == ["0"] * MOST_OPEN, "the first worker has found ids and written none"
    shop.forget("fanout_id is not null")
    shop.write_linked(999_999, author=1)
    shop.rename(1)
    shop.due()
    shop.no_room(PAGE)
    shop.a_worker().run(2)
    assert [each.status for each in shop.fanouts()] == ["pending", "done"], "merged, with one page"
    while shop.fanouts()[0].status != "done":
        shop.forget("fanout_id is not null and entity_id <> '999999'")
        shop.due()
        shop.worker.run(1)
    assert "999999" in shop.refreshed()


@pytest.mark.parametrize("broken", ["token", "cursor", "status"])
def test_a_page_is_written_only_by_who_holds_the_fanout_as_it_was_read(shop: Shop, broken: str) -> None:
    shop.write(1, 3, author=1)
    shop.rename(1)
    store, token, events = shop.claimed()
    (fanout,) = store.read(events)
    change = {"cursor": "set fanout_cursor = '1'", "status": "set status = 'pending'", "token": "set attempts = 7"}
    shop.db.execute(f"update search_outbox_events {change[broken]} where op = 'fanout'".encode())
    assert store.write(fanout, uuid4() if broken == "token" else token, ["1", "2"]) == 0
    assert shop.refreshed() == []


def test_a_page_and_its_cursor_stand_or_fall_together(shop: Shop) -> None:
    """An entity that cannot be written takes the cursor with it."""
    shop.write(1, 3, author=1)
    shop.rename(1)
    shop.db.execute("alter table search_outbox_events add constraint small check (op <> 'refresh' or entity_id < '3')")
    shop.project()
    (fanned,) = shop.fanouts()
    assert (fanned.status, fanned.cursor, fanned.written) == ("failed", None, None)
    assert "SQLSTATE 23514" in (fanned.error or "")
    assert shop.refreshed() == []


def test_one_that_has_begun_is_not_merged_with_a_later_change(shop: Shop) -> None:
    """Its first pages were read before the other's change."""
    shop.write(1, MOST_OPEN + 10, author=1)
    shop.rename(1)
    shop.worker.run(1)
    shop.db.execute("update search_outbox_events set status = 'done' where op = 'refresh'")
    shop.rename(1)
    for _ in range(3):
        shop.due()
        shop.worker.run(2)
        shop.db.execute("update search_outbox_events set status = 'done' where op = 'refresh'")
    assert [each.written for each in shop.fanouts()] == [MOST_OPEN + 10] * 2
    assert len(shop.refreshed()) == 2 * (MOST_OPEN + 10)


class TestMerging:
    def test_new_ones_with_equal_keys_are_one(self, shop: Shop) -> None:
        shop.write(1, PAGE + 1, author=1)
        shop.rename(1, 1, 1)
        shop.worker.run()
        assert len(shop.refreshed()) == PAGE + 1
        assert [each.written for each in shop.fanouts()] == [PAGE + 1, None, None]
        assert {each.status for each in shop.fanouts()} == {"done"}

    def test_one_whose_query_fails_holds_up_none_of_its_neighbours(self, shop: Shop) -> None:
        shop.db.execute("create table tags (id int primary key, article text)")
        attach(shop.db, "tags", entity_type="article", via="select id from articles where id = changed.article::int")
        shop.write(1, 3, author=1)
        shop.db.execute("insert into tags values (1, '2'), (2, 'none'), (3, '3')")
        shop.project()
        assert sorted(each.status for each in shop.fanouts()) == ["done", "done", "failed"]
        assert shop.refreshed() == ["2", "3"]


class TestWhoseQueriesAreRun:
    def test_a_closed_attachment_expands_what_is_open(self, shop: Shop) -> None:
        shop.write(1, 3, author=1)
        shop.rename(1)
        detach(shop.db, "authors")
        shop.project()
        assert shop.refreshed() == ["1", "2", "3"]

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ("fanout_keys", "names no attachment"),
            ("fanout_attachment", "no keys"),
            ("fanout_attachment, fanout_keys", "SQLSTATE 22P02"),
        ],
    )
    def test_what_a_producer_forges_fails_alone(self, shop: Shop, columns: str, said: str) -> None:
        """Keys are data, whatever they say; the type is the attachment's."""
        shop.write(1, 1, author=1)
        number = shop.db.execute("select id from search_outbox_attachments where via is not null").fetchone()
        values = {"fanout_attachment": number, "fanout_keys": ('{"id": "1); drop table articles; --"}',)}
        given = [values[name.strip()][0] for name in columns.split(",")]  # type: ignore[index]
        shop.db.execute(
            f"insert into search_outbox_events (entity_type, entity_id, op, {columns})"
            f" values ('other', 'x', 'fanout'{', %s' * len(given)})".encode(),
            given,
        )
        shop.project()
        (fanned,) = shop.fanouts()
        assert fanned.status == "failed"
        assert said in (fanned.error or "")
        assert shop.db.execute("select count(*) from articles").fetchone() == (1,)

    def test_what_arguments_of_triggers_say_is_never_asked(self, shop: Shop) -> None:
        """S1: any owner of a table writes them; `doctor` and the console plan queries of attachments."""
        hostile = '{"type": "x", "via": "select 1; delete from search_outbox_events; commit"}'
        shop.db.execute(
            f"create table theirs (id int);"
            f" create function search_outbox_capture_theirs() returns trigger language plpgsql"
            f" as 'begin return null; end'; create trigger search_outbox_capture_x_insert after insert on theirs"
            f" for each statement execute function search_outbox_capture_theirs('{hostile}');"
            f" create trigger search_outbox_capture_x_update after update on theirs"
            f" for each statement execute function search_outbox_capture_theirs('not json')".encode()
        )
        shop.rename(1)
        facts = {each.there.attachment.table: each for each in read_facts(shop.db, "search_documents")}
        assert facts["public.theirs"].there.number is None
        assert (facts["public.theirs"].via_error, facts["public.theirs"].via_scans) == ("", "")
        assert next(finding.level for finding in attached([facts["public.theirs"]])) is Level.BAD
        assert len(shop.fanouts()) == 1
