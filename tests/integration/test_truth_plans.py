"""Pages of a comparison cost what they hold: each by an index, whatever lies before and behind them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox.policy.drift import Key
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate
from outbox.store.truth import PostgresTruth
from tests.fixtures.queue import EventTable, fresh_queue

ROWS = 10_000


@pytest.fixture(scope="module")
def truth(postgres_url: str, migrated_template: str) -> Iterator[PostgresTruth]:
    """Of one database for all: nothing here is written."""
    with fresh_queue(postgres_url, migrated_template) as queue:
        yield filled(queue)


def filled(queue: EventTable) -> PostgresTruth:
    migrate(queue.url, by_entity=True)
    queue.connection.execute(
        b"create table articles (id bigint primary key, title text);"
        b"create table authors (id uuid primary key, name text);"
        b"create view search_documents as"
        b" select 'article'::text as entity_type, id::bigint as entity_id, to_json(a) as document, 1::bigint as version"
        b" from articles a"
    )
    queue.connection.execute(f"insert into articles select g, 'x' from generate_series(1, {ROWS}) g".encode())
    for _ in range(3):
        queue.produce_many(ROWS, "comment")
    queue.connection.execute("update search_outbox_events set status = 'done', processed_at = now()")
    queue.connection.execute("analyze")
    truth = PostgresTruth(queue.pool(), "search_documents")
    truth.kept_by_view("comment")
    truth.types()  # asked once
    return truth


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The plan of every statement that the store runs, as it runs it."""
    plans: list[dict[str, Any]] = []
    original = Database.transaction

    class Watched:
        def __init__(self, connection: psycopg.Connection[Any]) -> None:
            self._connection = connection

        def execute(self, query: Any, named: Any = None) -> Any:
            text = query.as_string(self._connection) if isinstance(query, sql.Composable) else query
            with psycopg.ClientCursor(self._connection) as cursor:
                row = cursor.execute(f"explain (analyze, format json) {text}".encode(), named).fetchone()
            assert row is not None
            plans.append((json.loads(row[0]) if isinstance(row[0], (str, bytes)) else row[0])[0]["Plan"])
            return self._connection.execute(query, named)

    @contextmanager
    def watched(self: Database, **options: Any) -> Iterator[Any]:
        with original(self, **options) as connection:
            yield Watched(connection)

    monkeypatch.setattr(Database, "transaction", watched)
    return plans


def rows_read(plan: dict[str, Any]) -> int:
    """Rows that scans of tables brought up, filtered ones included."""
    inner = sum(rows_read(each) for each in plan.get("Plans", []))
    if "Relation Name" not in plan:
        return inner
    filtered = plan.get("Rows Removed by Filter", 0)
    return inner + int((plan["Actual Rows"] + filtered) * plan["Actual Loops"])


def test_a_page_in_the_middle_of_the_view_reads_its_own_rows(
    truth: PostgresTruth, explained: list[dict[str, Any]]
) -> None:
    assert len(truth.keys("article", "5000", 500)) == 500
    assert rows_read(explained[-1]) <= 501


def test_a_page_of_entities_by_their_events_hops_over_the_index(
    truth: PostgresTruth, explained: list[dict[str, Any]]
) -> None:
    assert len(truth.keys("comment", "5", 500)) == 500
    assert rows_read(explained[-1]) <= 600


def test_newest_events_presence_and_open_ones_are_found_by_the_index(
    truth: PostgresTruth, explained: list[dict[str, Any]]
) -> None:
    keys = [Key("comment", str(n)) for n in range(1, 501)]
    for look in (truth.load, truth.present, truth.open_of, truth.failed_of):
        explained.clear()
        look(keys)
        assert rows_read(explained[-1]) <= 4 * len(keys), look


def test_what_the_view_has_is_found_by_its_key(truth: PostgresTruth, explained: list[dict[str, Any]]) -> None:
    keys = [Key("article", str(n)) for n in range(1, 501)]
    assert len(truth.present(keys)) == 500
    assert rows_read(explained[-1]) <= 2 * len(keys)
