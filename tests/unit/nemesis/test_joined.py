"""The joined and the routed part of the load: what they write, in which order they commit, what the ledger says."""

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from labs.ledger import Ledger
from tests.nemesis import joined, routed
from tests.nemesis.joined import FIRST, SECOND, Pairs


class Scripted:
    """A connection that notes its commits in a list that others share; it may break."""

    def __init__(self, name: str, committed: list[str], breaks: str = "", *, free: bool = True) -> None:
        self.free = free
        self.name = name
        self.committed = committed
        self.breaks = breaks
        self.refreshed: list[str] = []
        self.said: list[str] = []

    def execute(self, query: str, values: Any = None) -> Any:
        if self.breaks == "write":
            raise psycopg.OperationalError("gone")
        self.said.append(query)
        if query == joined.ASK:
            self.refreshed.append(values[1])
        return self

    def fetchone(self) -> tuple[str | bool]:
        return (self.free if self.said[-1] == routed.TRY_TO_SHARE else str(uuid.uuid4()),)

    def fetchall(self) -> list[tuple[str]]:
        return [("o1",), ("o2",)]

    def commit(self) -> None:
        if self.breaks == "commit":
            raise psycopg.OperationalError("gone")
        self.committed.append(self.name)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.ndjson") as made:
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def pair(load: Pairs, dice: random.Random, *breaks: str) -> tuple[list[str], list[Scripted]]:
    committed: list[str] = []
    both = [Scripted(name, committed, how) for name, how in zip("ab", breaks or ("", ""), strict=True)]
    load.commit(cast(list[psycopg.Connection[Any]], both), dice)
    return committed, both


def test_half_of_the_pairs_commit_in_the_other_order_than_they_wrote(ledger: Ledger) -> None:
    load, dice = Pairs(ledger), random.Random(1)
    orders = Counter("".join(pair(load, dice)[0]) for _ in range(400))
    assert set(orders) == {"ab", "ba"}
    assert orders["ba"] == load.swapped
    assert 150 < load.swapped < 250


def test_a_second_transaction_locks_no_parent_so_that_a_thread_never_waits_for_itself(ledger: Ledger) -> None:
    load, dice = Pairs(ledger), random.Random(3)
    seconds = [query for _ in range(300) for query in pair(load, dice)[1][1].said]
    assert not [query for query in seconds if "nemesis_parents" in query]
    waiting = [query for query in seconds if query.startswith(("delete", "update")) and "skip locked" not in query]
    assert waiting == []
    assert set(FIRST) & set(SECOND) == {joined.add_note, joined.remove_note, joined.remove_tag}


def test_a_connection_that_breaks_before_any_commit_leaves_nothing_in_the_ledger(ledger: Ledger) -> None:
    load = Pairs(ledger)
    with pytest.raises(psycopg.OperationalError):
        pair(load, random.Random(5), "", "write")
    assert (ledger.entries, load.refused) == ([], 2)
