"""Statistics, groups and previews: right numbers. What they read of a large table: test_browse_plans.py."""

from datetime import timedelta
from typing import Any

import psycopg

from outbox.ops.failures import FailureDesk, StatsDesk
from outbox.policy.inputs import EventFilter
from outbox.store.failures import PostgresFailures, PostgresRollup, PostgresStatistics
from outbox.store.pool import Database
from tests.fixtures.failures import events

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
    assert statistics.forget(timedelta(hours=100), 1_000) == 0


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
