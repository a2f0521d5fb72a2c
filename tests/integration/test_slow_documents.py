"""One document of the view that takes too long or breaks its read: it alone is retried, its neighbours are done."""

import json
import time
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox.errors import DocumentsUnavailable
from outbox.facts import SinkPaused
from outbox.policy.backoff import Backoff
from outbox.policy.document import BATCH_BYTES
from outbox.policy.drift import Key
from outbox.policy.settle import RetryPolicy
from outbox.store.documents import ViewDocuments
from outbox.store.events import Wanted
from outbox.store.lookup_in_parts import LookupLimits
from outbox.store.truth import PostgresTruth
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink

# Long enough for a busy machine: a part without a slow row takes a few milliseconds.
LIMITS = LookupLimits(whole_ms=2_000, part_ms=700, alone_ms=700, budget_seconds=20.0, suspects_seconds=0.5)
ATTEMPTS = 3
SCHEMA = """
create table article (id bigint primary key, name text not null);
create function computed(name text) returns json language plpgsql stable as $$
begin
    if name = 'slow' then perform pg_sleep(60); end if;
    if name like 'state %' then raise exception 'secret' using errcode = split_part(name, ' ', 2); end if;
    return json_build_object('name', name);
end $$;
create view search_documents as
    select 'article'::text as entity_type, id as entity_id, computed(name) as document from article;
"""
# Where this was not said, the view is asked for the type before it is asked for an entity.
DECLARED = (
    "insert into search_outbox_entity_types (entity_type, kept_by, declared_by) values ('article', 'view', 'test')"
)


class Articles:
    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.sink = MemorySink()
        self.documents = ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES, limits=LIMITS)
        retry = RetryPolicy(ATTEMPTS, Backoff(1.0, 300.0))
        self.worker = InProcess(Parts(queue.store(), self.sink, self.documents, retry))

    def fill(self, *names: str, first: int = 1) -> list[UUID]:
        """Articles with an event each."""
        for id, name in enumerate(names, first):
            self.queue.connection.execute("insert into article values (%s, %s)", [id, name])
        return [self.queue.produce(str(id), payload=None) for id in range(first, first + len(names))]

    def state(self, id: UUID) -> tuple[Any, ...]:
        row = self.queue.row(id)
        return row.status, row.attempts, row.error_reason

    def held(self) -> dict[str, Any]:
        documents = self.sink.documents.items()
        return {id.removeprefix("article:"): json.loads(body) for (_, id), (_, body) in documents}

    def replace_view(self, id: str, document: str = "json_build_object('name', name)", more: str = "") -> None:
        with self.queue.connection.transaction():
            self.queue.connection.execute("drop view search_documents")
            self.queue.connection.execute(
                f"create view search_documents as select 'article'::text as entity_type, {id} as entity_id,"
                f" {document} as document{more} from article".encode()
            )


@pytest.fixture
def articles(queue: EventTable) -> Articles:
    queue.connection.execute(f"{SCHEMA} {DECLARED}".encode())
    return Articles(queue)


def test_a_slow_document_has_retries_of_its_own_and_its_neighbours_are_done_in_the_same_batch(
    articles: Articles,
) -> None:
    ids = articles.fill(*["x"] * 23, "slow", *["x"] * 23)
    slow = ids.pop(23)
    articles.worker.run()
    assert {articles.state(id) for id in ids} == {("done", 1, None)}
    assert articles.state(slow) == ("pending", 1, "timeout")
    assert articles.queue.row(slow).next_retry_at is not None
    assert "took over 0.7 s" in articles.queue.row(slow).error
    assert not articles.worker.of(SinkPaused), "nobody else is held up"

    for attempt in range(2, ATTEMPTS + 1):
        articles.queue.make_due()
        neighbours = articles.fill(*["x"] * 5, first=100 * attempt)
        started = time.monotonic()
        articles.worker.run()
        took = time.monotonic() - started
        assert {articles.state(id) for id in neighbours} == {("done", 1, None)}
        assert articles.state(slow)[1:] == (attempt, "timeout")
        assert took < LIMITS.whole_ms / 1000, "it is read apart, its batch is not searched again"
    row = articles.queue.row(slow)
    assert (row.status, row.dead_reason) == ("failed", "max_attempts_exceeded")


def test_a_view_that_is_slow_for_all_is_paused_and_no_event_is_blamed(articles: Articles) -> None:
    ids = articles.fill(*["slow"] * 12)
    articles.worker.run()
    assert {articles.state(id) for id in ids} == {("pending", 0, "documents_unavailable")}
    assert len(articles.worker.of(SinkPaused)) == 1


@pytest.mark.parametrize(("count", "declared"), [(1, False), (12, True)])
def test_a_table_that_is_locked_blames_no_event(articles: Articles, count: int, declared: bool) -> None:
    if not declared:
        articles.queue.connection.execute("truncate search_outbox_entity_types")
    ids = articles.fill(*["x"] * count)
    with psycopg.connect(articles.queue.url) as other:
        other.execute("lock table article in access exclusive mode")
        articles.worker.run()
    assert {articles.state(id) for id in ids} == {("pending", 0, "documents_unavailable")}
    articles.queue.make_due()
    articles.worker.run()
    assert {articles.state(id) for id in ids} == {("done", 1, None)}


@pytest.mark.parametrize(
    ("sqlstate", "status", "reason"),
    [
        ("54001", "pending", "unknown_exception"),
        ("XX001", "pending", "unknown_exception"),
        ("22012", "failed", "deterministic_exception"),
    ],
    ids=["a limit of the program", "a damaged page", "a division"],
)
def test_a_row_that_breaks_its_read_is_named_and_its_neighbours_are_done(
    articles: Articles, sqlstate: str, status: str, reason: str
) -> None:
    ids = articles.fill(*["x"] * 9, f"state {sqlstate}", *["x"] * 9)
    broken = ids.pop(9)
    articles.worker.run()
    assert articles.state(broken) == (status, 1, reason)
    assert sqlstate in articles.queue.row(broken).error
    assert "secret" not in articles.queue.row(broken).error
    assert {articles.state(id) for id in ids} == {("done", 1, None)}


def test_a_comparison_reads_all_but_the_slow_documents_and_names_these(articles: Articles) -> None:
    articles.fill(*["slow"] * 2, *["x"] * 4)
    truth = PostgresTruth(articles.queue.pool(), "search_documents", limits=LIMITS)
    for _ in range(2):  # searched for, then known: one of them in each lookup
        found = truth.load([Key("article", str(n)) for n in range(1, 7)])
        assert ["took over" in (each.failure or "") for each in found] == [True] * 2 + [False] * 4
        assert all(each.text for each in found[2:])


def test_a_view_that_is_replaced_by_one_with_other_ids_is_read_anew_at_once(articles: Articles) -> None:
    articles.fill("x", "y")
    articles.worker.run()
    articles.replace_view("'a' || id", more=", 7::bigint as version")
    asked = [articles.queue.produce(id, payload=None) for id in ("1", "2", "a1")]
    articles.worker.run(2)
    articles.worker.run()
    assert {articles.state(id)[0] for id in asked} == {"done"}
    assert articles.held() == {"a1": {"name": "x"}}
    articles.replace_view("id")
    back = articles.queue.produce("2", payload=None)
    articles.worker.run()
    assert articles.state(back)[0] == "done"
    assert articles.held()["2"] == {"name": "y"}
    articles.queue.connection.execute("create type word as enum ('x', 'y', 'z')")
    articles.queue.connection.execute("create domain some_word as word")
    for replaced, text in (("name::some_word", "x"), ("name", "x"), ("'w' || id", "w1")):
        articles.replace_view(replaced)
        if replaced == "name":
            articles.queue.connection.execute("insert into article values (3, 'no word')")
        event = articles.queue.produce(text, payload=None)
        articles.worker.run()
        assert articles.state(event)[0] == "done"
        assert articles.held()[text] == {"name": "x"}
        articles.sink.documents.clear()
    assert not articles.worker.of(SinkPaused)


@pytest.mark.parametrize(
    ("replaced", "told"),
    [
        ("decode('00', 'hex')", "entity_id is bytea; give it as text"),
        ("timestamptz 'epoch'", "entity_id is timestamp with time zone; give it as text"),
    ],
)
def test_a_view_that_gets_ids_which_name_no_documents_releases_its_events_and_says_so(
    articles: Articles, replaced: str, told: str
) -> None:
    articles.fill("x")
    articles.queue.produce("p", entity_type="note")
    articles.worker.run()
    articles.replace_view(replaced)
    looked_up, payload = articles.fill("y", first=2)[0], articles.queue.produce("p", entity_type="note")
    articles.worker.run()
    row = articles.queue.row(looked_up)
    assert (articles.state(looked_up), articles.state(payload)[0]) == (("pending", 0, "documents_unavailable"), "done")
    assert told in row.error
    with pytest.raises(DocumentsUnavailable):
        articles.documents.load([Wanted(UUID(int=1), "article", "2")])


def test_a_view_that_cannot_tell_which_types_it_has_releases_the_first_event_of_one(articles: Articles) -> None:
    """A volatile function is run for every row that is asked for, whatever is asked of it. One with a payload: of any
    other the view is the truth whatever rows it has."""
    connection = articles.queue.connection
    connection.execute("alter function computed volatile")
    connection.execute("truncate search_outbox_entity_types")
    articles.fill("state 22012")
    connection.execute("delete from search_outbox_events")
    id = articles.queue.produce("1")
    articles.worker.run()
    assert articles.state(id) == ("pending", 0, "documents_unavailable")
    connection.execute("update article set name = 'x'")
    articles.queue.make_due()
    articles.worker.run()
    assert articles.state(id)[0] == "failed", "the view has rows of its type"
