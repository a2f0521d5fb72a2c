"""Counts by type reach search_outbox_rollup, add up over daemons, survive an outage and stay bounded."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox import facts
from outbox.errors import DatabaseDown
from outbox.store.failures import PostgresRollup, RollupKey
from outbox.store.pool import Database
from outbox.telemetry.rollup import MOST_TYPES, Rollup


@pytest.fixture
def store(pool: Database) -> PostgresRollup:
    return PostgresRollup(pool)


def settled(by_type: Mapping[RollupKey, int]) -> facts.BatchSettled:
    return facts.BatchSettled(uuid4(), 0, 0, 0, 0, 0, 0, 0, 0, 0.01, 0.01, (), by_type)


def counted(connection: psycopg.Connection) -> dict[RollupKey, int]:
    rows = connection.execute(
        "select entity_type, outcome, reason, sum(n)::int from search_outbox_rollup"
        " where span = 'minute' and bucket = date_trunc('minute', bucket) and bucket > now() - interval '2 minutes'"
        " group by 1, 2, 3"
    ).fetchall()
    return {(entity_type, outcome, reason): n for entity_type, outcome, reason, n in rows}


def ignore(_: facts.Fact) -> None:
    """Nobody listens."""


def test_counts_add_up_over_batches_and_daemons(connection: psycopg.Connection, store: PostgresRollup) -> None:
    one, two = Rollup(store, ignore), Rollup(store, ignore)
    one.handle(settled({("article", "done", ""): 3, ("article", "failed", "too_large"): 1}))
    one.handle(settled({("article", "done", ""): 2}))
    two.handle(settled({("article", "done", ""): 5}))
    two.handle(facts.Reclaimed(4, 4, 2))
    for rollup in (one, two, one):
        rollup.flush()
    assert counted(connection) == {
        ("article", "done", ""): 10,
        ("article", "failed", "too_large"): 1,
        ("other", "failed", "crash_suspect"): 2,
    }


def test_types_beyond_the_first_two_hundred_are_other(connection: psycopg.Connection, store: PostgresRollup) -> None:
    rollup = Rollup(store, ignore)
    for n in range(MOST_TYPES + 50):
        rollup.handle(settled({(f"type-{n}", "done", ""): 1}))
    rollup.handle(settled({("x" * 100_000, "done", ""): 1}))
    rollup.flush()
    found = counted(connection)
    assert len(found) == MOST_TYPES + 1
    assert found["other", "done", ""] == 51


class Away:
    """A store whose server comes and goes."""

    def __init__(self) -> None:
        self.there = False
        self.added: dict[RollupKey, int] = {}

    def add(self, counts: Mapping[RollupKey, int]) -> None:
        if not self.there:
            raise DatabaseDown("refused")
        for key, n in counts.items():
            self.added[key] = self.added.get(key, 0) + n


def test_counts_that_could_not_be_written_go_with_the_next() -> None:
    heard: list[Any] = []
    store: Any = Away()
    rollup = Rollup(store, heard.append)
    rollup.handle(settled({("article", "done", ""): 3}))
    rollup.flush()
    rollup.handle(settled({("article", "done", ""): 4}))
    store.there = True
    rollup.flush()
    rollup.flush()
    assert store.added == {("article", "done", ""): 7}
    assert heard == [facts.DatabaseLost("rollup", "refused")]
