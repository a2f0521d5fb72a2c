"""A claim over many dead index entries that nobody may remove: from its floor it walks past none of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable
from tests.integration.test_claim_plan import BLOCKS_A_ROW, SOME_BLOCKS, explain

DEAD, FRESH, LIMIT = 150_000, 2_000, 20


@pytest.fixture(scope="module")
def pinned(postgres_url: str, migrated_template: str) -> Iterator[tuple[EventTable, int]]:
    """Events that ended while another session reads the past; and the seq of the first that is still open."""
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(postgres_url, migrated_template))
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        queue = EventTable(url, connection, stack)
        queue.produce_many(DEAD)
        holder: psycopg.Connection[Any] = stack.enter_context(psycopg.connect(url))
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from search_outbox_migrations")
        connection.execute("update search_outbox_events set status = 'done', processed_at = now()")
        queue.produce_many(FRESH)
        connection.execute("analyze search_outbox_events")
        yield queue, int(queue.value("select min(seq) from search_outbox_events where processed_at is null"))


@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
def test_a_claim_from_its_floor_touches_blocks_in_proportion_to_its_batch(
    pinned: tuple[EventTable, int], generic: bool
) -> None:
    queue, floor = pinned
    plan = explain(queue, "claim", generic, limit=LIMIT, retry_limit=LIMIT // 2, floor=floor)
    assert plan.indexes <= {"fresh_idx", "retry_idx"}, plan.indexes
    assert plan.blocks < SOME_BLOCKS + BLOCKS_A_ROW * LIMIT, plan.blocks


def test_the_dead_entries_are_really_there(pinned: tuple[EventTable, int]) -> None:
    """Without the floor the same claim reads them all: else the test above would show nothing."""
    queue, _ = pinned
    plan = explain(queue, "claim", False, limit=LIMIT, retry_limit=LIMIT // 2, floor=0)
    assert plan.blocks > 10 * (SOME_BLOCKS + BLOCKS_A_ROW * LIMIT), plan.blocks
