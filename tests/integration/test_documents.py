"""Upserts without a payload, looked up in the view: gone rows, null documents, broken expressions, broken views."""

import json
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.daemon.brake import WINDOW_SECONDS
from outbox.errors import DocumentsUnavailable
from outbox.facts import BrakeOff, BrakeOn, SinkPaused, SinkResumed
from outbox.policy.document import BATCH_BYTES
from outbox.policy.settle import HOLD_SECONDS
from outbox.store.documents import ViewDocuments, asking_for
from outbox.store.queries import queries
from tests.fixtures.events import Time
from tests.fixtures.failures import open_database
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink

TABLE = "create table article (id uuid primary key default gen_random_uuid(), name text, version bigint, body jsonb)"
VIEW = (
    "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
    " coalesce(body, json_build_object('n', 100 / length(name))::jsonb) as document, version from article"
)


class Articles:
    """A table of the user's, its view, and a worker that looks up documents in it."""

    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.sink = MemorySink()
        self.clock = Time()
        documents = ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES)
        self.worker = InProcess(Parts(queue.store(), self.sink, documents=documents, clock=self.clock))

    def add(self, name: str = "one", version: int | None = None, body: Any = None) -> str:
        text = None if body is None else json.dumps(body)
        insert = "insert into article (name, version, body) values (%s, %s, %s) returning id"
        row = self.queue.connection.execute(insert, [name, version, text]).fetchone()
        assert row is not None
        return str(row[0])

    def ask(self, entity_id: str, **values: Any) -> Any:
        return self.queue.produce(entity_id, payload=None, **values)

    def document(self, entity_id: str) -> tuple[int, Any] | None:
        found = self.sink.documents.get(("articles", f"article:{entity_id}"))
        return None if found is None else (found[0], json.loads(found[1]))


@pytest.fixture
def articles(queue: EventTable) -> Articles:
    queue.connection.execute(TABLE)
    queue.connection.execute(VIEW)
    return Articles(queue)


def test_every_event_of_a_type_that_the_view_keeps_is_a_lookup_under_a_drawn_version(articles: Articles) -> None:
    """Whatever version an event carries, and although the view still has a column of that name."""
    one, two = articles.add(version=77), articles.add("four")
    for entity, op, version in ((one, "upsert", 3), (two, "delete", 10**9), (two, "refresh", 1)):
        articles.queue.produce(entity, op, payload=None, event_version=version)
    articles.worker.run()
    drawn = articles.queue.value("select last_value from search_outbox_version")
    assert (articles.document(one), articles.document(two)) == ((drawn, {"n": 33}), (drawn, {"n": 25}))
    assert articles.queue.counts() == {"done": 3}


def test_a_null_document_fails_its_row_alone(articles: Articles) -> None:
    articles.queue.connection.execute(
        "create or replace view search_documents as select 'article'::text as entity_type, id as entity_id,"
        " case when name = 'bad' then null else '{}'::jsonb end as document, version from article"
    )
    good, bad = articles.add(), articles.add("bad")
    articles.ask(good)
    id = articles.ask(bad)
    articles.worker.run()
    row = articles.queue.row(id)
    assert (row.status, row.error_reason, row.error_code) == (
        "failed",
        "deterministic_exception",
        "OUTBOX_ENTITY_NOT_FOUND",
    )
    assert articles.document(good) is not None


RAISES = (
    "create function moody(name text) returns jsonb language plpgsql stable as"
    " $$ begin if name = '' then raise exception 'secret %', name; end if; return '{}'; end $$"
)
TWO_ROWS = "case when name = '' then (select '{}'::jsonb from generate_series(1, 2)) else '{}' end"


@pytest.mark.parametrize(
    ("expression", "sqlstate"),
    [("body", "22012"), ("moody(name)", "P0001"), (TWO_ROWS, "21000")],
    ids=["a division by zero", "an exception of a function's own", "a subquery with two rows"],
)
def test_the_one_row_whose_expression_fails_is_blamed_and_its_neighbours_go_on(
    articles: Articles, expression: str, sqlstate: str
) -> None:
    conn = articles.queue.connection
    conn.execute(RAISES)
    if expression != "body":
        conn.execute(
            "create or replace view search_documents as select 'article'::text as entity_type, id as entity_id,"
            f" {expression} as document, version from article".encode()
        )
    for number in range(20):
        articles.ask(articles.add("" if number == 13 else "x"))
    articles.worker.run()
    assert articles.queue.counts() == {"done": 19, "failed": 1}
    (row,) = articles.queue.rows("status = 'failed'")
    assert (row.error_reason, row.error_code) == ("deterministic_exception", "OUTBOX_PAYLOAD_INVALID")
    assert sqlstate in row.error
    assert "secret" not in row.error


def test_an_id_that_no_row_can_have_is_gone_and_costs_its_neighbours_nothing(articles: Articles) -> None:
    """As `repair` needs it: a document under such an id is an orphan, and only a delete takes it away."""
    good = articles.add()
    articles.ask(good)
    odd = [articles.ask(id) for id in ("not-a-uuid", good.upper(), f" {good}")]
    articles.worker.run()
    assert [articles.queue.row(id).status for id in odd] == ["done"] * 3
    assert {id for _, id in articles.sink.tombstones} == {
        f"article:{id}" for id in ("not-a-uuid", good.upper(), f" {good}")
    }
    assert articles.document(good) is not None


def test_a_view_that_is_gone_after_the_start_releases_its_rows_and_holds_up_nobody(articles: Articles) -> None:
    one = articles.add()
    articles.ask(one)
    articles.queue.produce("p", entity_type="note")
    articles.worker.run()
    conn = articles.queue.connection
    conn.execute("drop view search_documents")
    looked_up, payload = articles.ask(one), articles.queue.produce("p", entity_type="note")
    articles.worker.run()
    row = articles.queue.row(looked_up)
    assert (row.status, row.attempts, row.error_reason) == ("pending", 0, "documents_unavailable")
    assert (
        3
        < articles.queue.value(
            "select extract(epoch from next_retry_at - now()) from search_outbox_events where id = %s", looked_up
        )
        <= 5
    )
    assert articles.queue.row(payload).status == "done"
    assert [fact.cause for fact in articles.worker.of(SinkPaused)] == ["documents_unavailable"]
    articles.queue.make_due()
    articles.worker.run()
    assert len(articles.worker.of(SinkPaused)) == 1, "said once"
    conn.execute(VIEW)
    articles.queue.make_due()
    articles.worker.run()
    assert articles.queue.row(looked_up).status == "done"
    assert len(articles.worker.of(SinkResumed)) == 1


def test_a_view_whose_schema_is_closed_is_unavailable_before_a_number_is_drawn(
    articles: Articles, database: str
) -> None:
    """The draw asks what kind of view it is, and is refused the name."""
    conn = articles.queue.connection
    role = f"outbox_{conn.info.dbname}"
    conn.execute(f"create role {role} login password 'x'".encode())
    conn.execute("create schema closed; create view closed.documents as select * from search_documents")
    conn.execute(f"grant usage on schema public to {role}; grant update on search_outbox_version to {role}".encode())
    try:
        url = psycopg.conninfo.make_conninfo(database, user=role, password="x")
        with open_database(url, size=1) as pool:
            assert ViewDocuments(pool, "search_documents", batch_bytes=BATCH_BYTES).draw() > 0
            with pytest.raises(DocumentsUnavailable, match=r"closed\.documents: permission denied for schema closed"):
                ViewDocuments(pool, "closed.documents", batch_bytes=BATCH_BYTES).draw()
    finally:
        conn.execute(f"drop owned by {role}".encode())
        conn.execute(f"drop role {role}".encode())


def test_a_materialised_view_is_not_read_and_its_events_wait_until_it_is_an_ordinary_one(articles: Articles) -> None:
    conn = articles.queue.connection
    conn.execute("drop view search_documents")
    conn.execute(VIEW.replace("create view", "create materialized view").encode())
    seen = articles.ask(articles.add(), op="refresh")
    articles.worker.run()
    assert articles.queue.row(seen).status == "pending"
    documents = ViewDocuments(articles.queue.pool(), "search_documents", batch_bytes=BATCH_BYTES)
    with pytest.raises(DocumentsUnavailable, match=r"materialised view.*Make it an ordinary view"):
        documents.page("article", None, 10)
    with pytest.raises(DocumentsUnavailable, match="materialised view"):
        documents.shape().query(queries("truth")["view_keys"])
    conn.execute("drop materialized view search_documents")
    conn.execute(VIEW.encode())
    articles.clock.passes(HOLD_SECONDS + 1)
    articles.queue.make_due()
    articles.worker.run()
    assert articles.queue.row(seen).status == "done"


def test_a_view_that_becomes_materialised_while_a_daemon_runs_is_not_read_any_more(articles: Articles) -> None:
    conn = articles.queue.connection
    entity = articles.add()
    articles.ask(entity, op="refresh")
    articles.worker.run()
    conn.execute("alter view search_documents rename to ordinary")
    conn.execute("create materialized view search_documents as select * from ordinary")
    conn.execute("delete from article where id = %s", [entity])
    seen = articles.ask(entity, op="refresh")
    articles.worker.run()
    assert articles.queue.row(seen).status == "pending"
    conn.execute("drop materialized view search_documents")
    conn.execute("alter view ordinary rename to search_documents")
    articles.clock.passes(HOLD_SECONDS + 1)
    articles.queue.make_due()
    articles.worker.run()
    assert articles.queue.row(seen).status == "done"
    assert articles.document(entity) is None


def test_large_documents_are_loaded_apart_in_portions(articles: Articles) -> None:
    articles.worker.parts.portion_bytes = articles.worker.projector.portion_bytes = 300_000
    entities = [articles.add(body={"text": "y" * 200_000, "n": n}, version=n) for n in range(5)]
    for entity in entities:
        articles.ask(entity)
    sizes = []
    write = articles.sink.write
    articles.worker.projector.sink = type(
        "Spy",
        (),
        {
            "probe": articles.sink.probe,
            "write": lambda _, actions, deadline: (sizes.append(len(actions)), write(actions, deadline))[1],
        },
    )()
    articles.worker.run()
    assert sizes == [1] * 5
    bodies = [document[1] for entity in entities if (document := articles.document(entity))]
    assert bodies == [{"text": "y" * 200_000, "n": n} for n in range(5)]


def test_a_large_payload_that_was_removed_on_the_way_fails_its_row_and_deletes_nothing(queue: EventTable) -> None:
    sink = MemorySink()
    worker = InProcess(Parts(queue.store(), sink))
    queue.produce("a", event_version=1)
    worker.run()
    id = queue.produce("a", event_version=2, payload=json.dumps({"text": "z" * 200_000}))
    neighbour = queue.produce("b")
    claimed = worker.claim()
    queue.connection.execute("update search_outbox_events set payload = null where id = %s", [id])
    worker.projector.project(claimed, 0)
    assert (queue.row(id).status, queue.row(id).error_code) == ("failed", "OUTBOX_PAYLOAD_MISSING")
    assert queue.row(neighbour).status == "done"
    assert sink.documents[("articles", "article:a")][0] == 1


def test_when_most_lookups_find_no_row_nothing_is_deleted_and_the_alarm_is_raised_once(articles: Articles) -> None:
    entities = [articles.add(version=1) for _ in range(60)]
    for entity in entities:
        articles.ask(entity, event_version=1)
    articles.worker.run()
    articles.clock.passes(WINDOW_SECONDS + 1)
    articles.queue.connection.execute("create table saved as select * from article")
    articles.queue.connection.execute("delete from article")
    asked = [articles.ask(entity, event_version=2) for entity in entities]
    found = articles.ask(articles.add("new"))
    articles.worker.run()
    assert len(articles.sink.documents) == 61
    rows = [articles.queue.row(id) for id in asked]
    assert {(row.status, row.attempts, row.error_reason) for row in rows} == {("pending", 0, "documents_unavailable")}
    assert articles.queue.row(found).status == "done"
    articles.queue.make_due()
    articles.worker.run()
    assert len(articles.worker.of(BrakeOn)) == 1
    articles.queue.connection.execute("insert into article select * from saved")
    articles.clock.passes(WINDOW_SECONDS + 1)
    articles.queue.make_due()
    articles.worker.run()
    assert {articles.queue.row(id).status for id in asked} == {"done"}
    assert len(articles.sink.documents) == 61
    articles.clock.passes(HOLD_SECONDS + 1)
    articles.worker.brake.let_fail(frozenset())
    assert [fact.held for fact in articles.worker.of(BrakeOff)] == [120]


def test_an_operator_who_has_checked_lets_the_deletes_through(articles: Articles) -> None:
    for _ in range(60):
        articles.ask("00000000-0000-0000-0000-000000000000", entity_type="article")
    for number in range(60):
        articles.ask(f"00000000-0000-0000-0000-{number:012}")
    articles.worker.run()
    assert articles.queue.counts() == {"pending": 120}
    articles.worker.brake.let_fail(frozenset({"lookups_without_a_row:article"}))
    articles.queue.make_due()
    articles.worker.run()
    assert articles.queue.counts() == {"done": 120}
    assert len(articles.worker.of(BrakeOff)) == 0 or articles.worker.of(BrakeOff)[0].held


# The plan


KEYS = {
    "uuid": "gen_random_uuid()",
    "bigint": "g",
    "text": "g::text",
    "char(26)": "lpad(g::text, 26, '0')",
    "varchar(40)": "g::text",
    "numeric(12, 2)": "g",
    "date": "date '2000-01-01' + g",
    "sku": "'s' || g",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_lookup_and_a_page_of_keys_use_the_tables_key_whatever_its_type(queue: EventTable, key: str) -> None:
    queue.connection.execute("create domain sku as char(10) check (value like 's%')")
    queue.connection.execute(f"create table thing (id {key} primary key, title text)".encode())
    queue.connection.execute(f"insert into thing select {KEYS[key]}, 'x' from generate_series(1, 20000) g".encode())
    queue.connection.execute("analyze thing")
    queue.connection.execute(
        "create view search_documents as select 'thing'::text as entity_type, id as entity_id,"
        " json_build_object('title', title) as document, null::bigint as version from thing"
    )
    ids = [str(row[0]) for row in queue.connection.execute("select id::text from thing limit 100").fetchall()]
    for id in ids:
        queue.produce(id, payload=None, entity_type="thing")
    documents = ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES)
    events = InProcess(Parts(queue.store(), MemorySink())).claim().events
    assert all(document.body for document in documents.load(events).values())
    parameters = asking_for([(e.entity_type, e.entity_id) for e in events], 0)
    shape = documents.shape()
    assert_by_key(queue, shape.query(queries("documents")["look_up"]), parameters)
    walked: dict[str, Any] = {"entity_type": "thing", "after": sorted(ids)[50], "limit": 100, "inline_bytes": 1000}
    for query in (queries("truth")["view_keys"], queries("documents")["page"]):
        assert_by_key(queue, shape.query(query, after=walked["after"]), walked)


def assert_by_key(queue: EventTable, query: sql.Composed, parameters: dict[str, Any]) -> None:
    with queue.pool().connection() as connection, psycopg.ClientCursor(connection) as cursor:
        rows = cursor.execute(sql.SQL("explain ") + query, parameters).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan, plan
    assert "thing_pkey" in plan
