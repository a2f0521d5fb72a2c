"""What a batch may cost, without a clock: statements, copies, files; HOT updates by the daemon's own claim."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from outbox.daemon import declarations, view_trust
from outbox.facts import BrakeOn
from outbox.policy.document import BATCH_BYTES
from outbox.store.documents import ViewDocuments
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink, elastic_sink
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.busy(whole=True)
MOST_HOT = 0.9
OF_A_CONNECTION = ("select pg_backend_pid()", "show default_transaction_isolation")


class Statements:
    def __init__(self) -> None:
        self.seen: list[str] = []


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Statements]:
    """Every statement of every connection of this process, but for those that a new connection begins with."""
    found = Statements()
    plain = psycopg.Cursor.execute

    def execute(self: Any, query: Any, *args: Any, **named: Any) -> Any:
        if query not in OF_A_CONNECTION:
            found.seen.append(query if isinstance(query, str) else str(query))
        return plain(self, query, *args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Cursor, "execute", execute)
        yield found


def a_worker(queue: EventTable, **parts: Any) -> InProcess:
    return InProcess(Parts(queue.store(), parts.pop("sink", MemorySink()), **parts))


@pytest.mark.parametrize("events", [1, 50, 500])
def test_a_batch_is_one_claim_and_one_settle_however_large(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    queue.produce_many(events + 1)
    worker = a_worker(queue)
    worker.run(1)  # the type is declared, and known
    with counted(monkeypatch) as statements:
        worker.run(events)
    assert worker.last.done == events
    assert len(statements.seen) == 2, statements.seen


def test_documents_of_the_view_are_one_query_per_batch(queue: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.connection.execute(
        "create table articles (id text primary key, title text);"
        "insert into articles select g::text, 'x' from generate_series(1, 200) g;"
        "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
        " json_build_object('title', title) as document from articles"
    )
    queue.produce_many(200, payload=None)
    worker = a_worker(queue, documents=ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES))
    worker.run(1)  # it has asked for the view's shape
    with counted(monkeypatch) as statements:
        worker.run(200)
    assert worker.last.done == 199
    assert sum("search_documents" in each for each in statements.seen) == 1, statements.seen
    # Claim, draw, the lookup behind its two limits (read only, time), which are one statement, settle.
    assert len(statements.seen) == 5, statements.seen


def of_types(queue: EventTable, first: int, number: int, *, payload: str | None) -> None:
    """One event of each of these types, whose entities the view has where there is one."""
    queue.connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'type ' || g, 'e', 'upsert', %s::json from generate_series(%s::int, %s::int) g",
        [payload, first, first + number - 1],
    )


@pytest.mark.parametrize("payload", [None, "{}"], ids=["lookups", "payloads"])
def test_a_batch_asks_as_many_statements_of_five_hundred_new_types_as_of_one(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch, payload: str | None
) -> None:
    queue.connection.execute(
        "create view search_documents as select 'type ' || g as entity_type, 'e' as entity_id, '{}'::json as document"
        f" from generate_series({1 if payload is None else 512}, 600) g"
    )
    of_types(queue, 1, 511, payload=payload)
    worker = a_worker(queue, documents=ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES))
    worker.run(10)  # it has asked for the view's shape
    seen = []
    for types in (1, 500):
        with counted(monkeypatch) as statements:
            worker.run(types)
        assert worker.last.done == types
        seen.append([each[:60] for each in statements.seen])
    assert len(seen[0]) == len(seen[1]), seen[1]


def test_types_that_are_held_back_by_their_brakes_are_sampled_together(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.connection.execute(
        "create table gone (kind text);"
        "create view search_documents as select entity_type, entity_id, '{}'::json as document"
        " from search_outbox_events where false"
    )
    queue.connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'type ' || t, e::text, 'refresh' from generate_series(1, 8) t, generate_series(1, 60) e order by e, t"
    )
    worker = a_worker(queue, documents=ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES))
    with counted(monkeypatch) as statements:
        worker.run(480)
    assert {fact.fingerprint for fact in worker.of(BrakeOn)} == {f"lookups_without_a_row:type {n}" for n in range(1, 9)}
    assert sum("newest" in each for each in statements.seen) == 1, "the sample of eight types is one statement"


def test_what_a_worker_remembers_of_types_is_bounded(queue: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "MOST_KNOWN", 20)
    monkeypatch.setattr(view_trust, "MOST_TYPES", 20)
    queue.connection.execute(
        "create view search_documents as select 'type ' || g as entity_type, 'e' as entity_id, '{}'::json as document"
        " from generate_series(1, 200) g"
    )
    of_types(queue, 1, 100, payload=None)
    worker = a_worker(queue, documents=ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES))
    for _ in range(10):
        worker.run(10)
    assert len(worker.projector.declarations._known[1]) <= 30
    assert len(worker.projector.lookups._seen) <= 20


def test_a_batch_is_held_twice_and_not_three_times(queue: EventTable, elastic_url: str, index: str) -> None:
    """Its rows as claimed, and the body of the one request."""
    size, events = 20_000, 200
    queue.produce_many(events, payload='{"title": "%s"}' % ("x" * size))
    with elastic_sink(elastic_url) as sink:
        worker = a_worker(queue, sink=sink, index_of=lambda _: index)
        worker.run(1)  # connections and caches are there
        tracemalloc.start()
        try:
            worker.run(events)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert worker.last.done == events - 1
    assert peak < 2.5 * size * events, f"{peak / (size * events):.2f} times the batch"


def test_the_daemons_own_claims_are_hot_updates(queue: EventTable) -> None:
    queue.produce_many(5_000, payload='{"title": "%s"}' % ("x" * 400))
    store = queue.store()
    before = _updates(queue)
    while queue.claim(store, limit=500).events:
        pass
    queue.pool().close()  # a backend that ends hands in its counts; an idle one keeps them for ten seconds
    updated, hot = eventually(lambda: _grown(queue, before, 5_000), what="the statistics")
    assert hot / updated > MOST_HOT


def _updates(queue: EventTable) -> tuple[int, int]:
    queue.connection.execute("select pg_stat_clear_snapshot()")
    row = queue.connection.execute(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'search_outbox_events'"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def _grown(queue: EventTable, before: tuple[int, int], rows: int) -> tuple[int, int] | None:
    updated, hot = (now - then for now, then in zip(_updates(queue), before, strict=True))
    return (updated, hot) if updated >= rows else None
