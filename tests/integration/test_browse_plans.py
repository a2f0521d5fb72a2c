"""What people read stays quick in a large table: every list by its index, and a slow query ends with a message."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox.errors import DependencyDown
from outbox.policy.inputs import EventFilter, parameters
from outbox.store.pool import BY_INDEX, ReadTooLong, bounded_read
from outbox.store.queries import queries
from tests.fixtures.depth import depth
from tests.fixtures.desks import desk_on
from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable

LAST = {"before_at": datetime(9999, 1, 1, tzinfo=UTC), "before_id": UUID(int=2**128 - 1), "limit": 50}
COUNTED = {"most": 200_000, "limit": 100, "offset": 0, "window": timedelta(hours=48), "fingerprints": ["0" * 16]}
READS: dict[tuple[str, str], dict[str, Any]] = {
    ("browsing", "list_open"): {"statuses": ["pending", "processing"], "before_seq": 2**62, "limit": 50},
    ("browsing", "list_failed"): LAST,
    ("browsing", "list_done"): LAST,
    ("browsing", "list_discarded"): LAST,
    **{("statistics", name): COUNTED for name in ("failed", "failed_hours", "discarded")},
    **{("failures", name): COUNTED for name in ("groups", "group_samples", "group_hours", "preview", "count")},
    **{("failures", name): COUNTED for name in ("plan_counts", "plan_rows", "plan_ids")},
}
MOST_BLOCKS = (
    2_000  # all failed rows, or a page of 50, with index pages; the done rows have three times as many or more
)


@pytest.fixture(scope="module")
def large(postgres_url: str, migrated_template: str) -> Iterator[EventTable]:
    """Many done rows, some thousand in every other state."""
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(postgres_url, migrated_template))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        queue = EventTable(url, connection, stack)
        for status, n in {
            "done": depth(60_000, 200_000),
            "failed": 3_000,
            "discarded": 1_000,
            "pending": 5_000,
        }.items():
            queue.produce_many(n, status=status, entity_type=status)
        connection.execute("vacuum analyze search_outbox_events")
        yield queue


@pytest.mark.parametrize(("topic", "name"), READS)
def test_a_page_touches_rows_in_proportion_to_itself(large: EventTable, topic: str, name: str) -> None:
    """And no statistic reads a done row."""
    with psycopg.connect(large.url) as connection, psycopg.ClientCursor(connection) as cursor:
        for setting, value in BY_INDEX.items() if topic == "browsing" else ():
            cursor.execute("select set_config(%s, %s, true)", [setting, value])
        query = "explain (analyze, buffers, format json) " + queries(topic)[name]
        row = cursor.execute(query.encode(), {**parameters(EventFilter()), **READS[topic, name]}).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert not [node for node in scans(plan) if node["Node Type"] == "Seq Scan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < MOST_BLOCKS


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of events, anywhere in the plan."""
    if node.get("Relation Name") == "search_outbox_events":
        yield node
    for child in node.get("Plans", ()):
        yield from scans(child)


def test_a_query_that_takes_too_long_says_how_to_narrow_it(large: EventTable) -> None:
    with (
        pytest.raises(ReadTooLong, match="Narrow it") as late,
        bounded_read(large.pool(), time_limit_ms=50) as connection,
    ):
        connection.execute("select pg_sleep(5)")
    assert isinstance(late.value, DependencyDown)
    assert late.value.exit_code == 75


def test_status_of_a_large_table_is_one_quick_query(large: EventTable) -> None:
    with desk_on(large.url) as desk:
        status = desk.status.read()
        page = desk.browse.page(EventFilter(entity_type="failed"), ["failed"], 500)
    assert (status.queue.lag, status.queue.failed) == (5_000, 3_000)
    assert len(page.events) == 500
