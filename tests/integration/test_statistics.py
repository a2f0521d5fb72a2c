"""Statistics, groups and previews: right numbers, from indexes of failed rows and the roll-up alone."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from outbox.ops.failures import FailureDesk, StatsDesk
from outbox.policy.inputs import BadRequest, EventFilter, parameters
from outbox.store.failures import PostgresFailures, PostgresRollup, PostgresStatistics
from outbox.store.pool import Database
from outbox.store.queries import queries
from outbox.store.retention import PostgresRetention
from tests.fixtures.failures import events
from tests.fixtures.postgres import fresh_database

Connection = psycopg.Connection[Any]


def test_failed_rows_are_counted_by_type_reason_and_failure_type(connection: Connection, pool: Database) -> None:
    events(connection, 3, entity_type="page", reason="connect")
    events(connection, 2, reason="too_large", prefix="b", age="3 hours")
    events(connection, 1, reason="something_of_the_guide", prefix="c")
    events(connection, 1, reason=None, prefix="d")
    events(connection, 5, status="done", prefix="o")
    connection.execute("update search_outbox_events set replay_count = 2 where entity_type = 'page'")
    look = StatsDesk(PostgresStatistics(pool)).read()
    assert look.failed.total == 7
    assert look.failed.by_entity_type == {"block": 4, "page": 3}
    assert look.failed.by_reason == {"connect": 3, "too_large": 2, "something_of_the_guide": 1, "none": 1}
    assert look.failed.by_failure_type == {"network": 3, "document": 2, "unknown": 2}
    assert look.failed_again == 3
    assert look.table == {"page": {"network": 3}, "block": {"document": 2, "unknown": 2}}
    assert sum(sum(hour.by_failure_type.values()) for hour in look.hours) == 7
    assert (look.last_day, look.day_before) == (7, 0)
    assert look.oldest is not None
    assert look.newest is not None
    assert look.newest - look.oldest > timedelta(hours=1)


def test_what_became_of_events_comes_from_the_roll_up(pool: Database) -> None:
    rollup = PostgresRollup(pool)
    rollup.add({("page", "done", ""): 5, ("page", "superseded", ""): 2, ("block", "failed", "connect"): 3})
    look = StatsDesk(PostgresStatistics(pool)).read()
    assert look.finished == {"page": 7}
    (hour,) = look.work
    assert hour.outcomes == {"done": 7, "failed": 3}


def test_the_roll_up_is_compacted_into_hours_without_losing_a_count(connection: Connection, pool: Database) -> None:
    connection.execute(
        "insert into search_outbox_rollup (bucket, span, entity_type, outcome, n)"
        " select date_trunc('minute', now()) - n * interval '1 minute', 'minute', 'page', 'done', 2"
        " from generate_series(0, 600) n"
    )
    statistics = PostgresStatistics(pool)
    moved = 0
    while step := statistics.compact(timedelta(hours=5), 100):
        moved += step
    assert moved >= 240
    spans = connection.execute("select span, count(*), sum(n) from search_outbox_rollup group by 1").fetchall()
    by_span = {span: (count, total) for span, count, total in spans}
    assert by_span["minute"][1] + by_span["hour"][1] == 1_202
    assert by_span["hour"][0] <= 6
    assert PostgresRetention(pool).forget("forget_rollup", timedelta(hours=100), 1_000) == 0


def test_groups_say_what_failed_how_often_and_since_when(connection: Connection, pool: Database) -> None:
    events(connection, 3, fingerprint="aaaaaaaaaaaaaaaa", age="2 hours")
    events(connection, 1, fingerprint="aaaaaaaaaaaaaaaa", entity_type="page", prefix="p", age="30 hours")
    events(connection, 2, fingerprint="bbbbbbbbbbbbbbbb", reason="connect", prefix="c")
    events(connection, 1, fingerprint=None, reason=None, code=None, prefix="old")
    connection.execute("update search_outbox_events set replay_count = 1 where entity_type = 'page'")
    desk = FailureDesk(PostgresFailures(pool))
    first, second, third = desk.groups(EventFilter())
    assert (first.fingerprint, first.count, first.failed_again) == ("aaaaaaaaaaaaaaaa", 4, 1)
    assert first.entity_types == ["block", "page"]
    assert (first.last_day, first.day_before) == (3, 1)
    assert sum(first.hours) == 3
    assert first.sample_error is not None
    assert first.sample_error.startswith("refused")
    assert (second.fingerprint, second.failure_type, second.count) == ("bbbbbbbbbbbbbbbb", "network", 2)
    assert (third.fingerprint, third.count) == ("none", 1)
    assert [group.count for group in desk.groups(EventFilter(entity_type="page"))] == [1]
    assert [group.count for group in desk.groups(EventFilter(fingerprint="none"))] == [1]


def test_a_preview_pages_without_duplicates_in_the_order_of_the_replay(connection: Connection, pool: Database) -> None:
    ids = events(connection, 7)
    desk = FailureDesk(PostgresFailures(pool))
    pages = [desk.preview(EventFilter(), page, 3) for page in (1, 2, 3)]
    assert [row["id"] for page in pages for row in page.rows] == ids
    assert [page.has_more for page in pages] == [True, True, False]
    assert {page.total for page in pages} == {7}
    for wrong in ({"page": 0}, {"page_size": 0}, {"page_size": 501}):
        with pytest.raises(BadRequest):
            desk.preview(EventFilter(), **wrong)


@pytest.fixture(scope="module")
def many(postgres_url: str, migrated_template: str) -> Iterator[Connection]:
    """60,000 done, 3,000 failed in 40 groups, 2,000 open: enough for the planner to have a choice. It is only read."""
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection)
        yield connection


def fill(connection: Connection) -> None:
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status, processed_at, payload)"
        " select 'block', n::text, 'upsert', 'done', now() - n * interval '1 second', '{}'"
        " from generate_series(1, 60000) n"
    )
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status, failed_at, error_reason,"
        " error_fingerprint) select 'block', 'f' || n, 'upsert', 'failed', now() - n * interval '1 second', 'connect',"
        " lpad(to_hex(n %% 40), 16, '0') from generate_series(1, 3000) n",
        [],
    )
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op) select 'block', 'o' || n, 'upsert'"
        " from generate_series(1, 2000) n"
    )
    connection.execute("vacuum analyze search_outbox_events")


NAMED: dict[str, Any] = {
    **parameters(EventFilter()),
    "most": 200_000,
    "limit": 100,
    "offset": 0,
    "window": timedelta(hours=48),
    "fingerprints": ["0000000000000001"],
}


@pytest.mark.parametrize(
    ("topic", "query"),
    [
        ("statistics", "failed"),
        ("statistics", "failed_hours"),
        ("statistics", "discarded"),
        ("failures", "groups"),
        ("failures", "group_samples"),
        ("failures", "group_hours"),
        ("failures", "preview"),
        ("failures", "count"),
        ("failures", "plan_counts"),
        ("failures", "plan_rows"),
        ("failures", "plan_ids"),
    ],
)
def test_no_statistic_reads_done_rows(many: Connection, topic: str, query: str) -> None:
    explain = f"explain (analyze, format json) {queries(topic)[query]}"
    row = many.execute(explain.encode(), NAMED).fetchone()
    assert row is not None
    read = rows_read(row[0][0]["Plan"])
    assert sum(read.values()) <= 3_100, read
    assert "Seq Scan" not in str([key for key in read if "search_outbox_events" in key])


def rows_read(plan: dict[str, Any]) -> dict[str, float]:
    """Rows that scans have touched, by node."""
    found: dict[str, float] = {}
    stack = [plan]
    while stack:
        node = stack.pop()
        stack += node.get("Plans", [])
        if "Relation Name" in node:
            name = f"{node['Node Type']} {node['Relation Name']} {node.get('Index Name', '')}"
            touched = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            found[name] = found.get(name, 0) + touched
    return found
