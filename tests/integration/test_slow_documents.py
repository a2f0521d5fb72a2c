"""One document of the view that takes too long or breaks its read: it alone is retried, its neighbours are done."""

import json
import time
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox.facts import SinkPaused
from outbox.policy.backoff import Backoff
from outbox.policy.document import BATCH_BYTES
from outbox.policy.settle import RetryPolicy
from outbox.store.documents import ViewDocuments
from outbox.store.lookup_in_parts import LookupLimits
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
