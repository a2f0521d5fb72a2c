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
from tests.nemesis import joined, linked, routed
from tests.nemesis.ids import TEXT
from tests.nemesis.joined import FIRST, SECOND, Connection, Pairs
from tests.nemesis.parts import PARTS


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


def test_every_transaction_refreshes_what_it_changed_and_both_are_in_the_ledger(ledger: Ledger) -> None:
    load, dice = Pairs(ledger), random.Random(2)
    for _ in range(200):
        before = len(ledger.entries)
        _, both = pair(load, dice)
        assert both[0].refreshed
        assert set(both[0].refreshed) <= set(both[1].refreshed)
        noted = sorted(entry.entity_id for entry in ledger.entries[before:])
        assert noted == sorted(both[0].refreshed + both[1].refreshed)
    assert {(entry.op, entry.entity_type, entry.committed) for entry in ledger.entries} == {("refresh", "joined", True)}


def test_a_second_transaction_locks_no_parent_so_that_a_thread_never_waits_for_itself(ledger: Ledger) -> None:
    load, dice = Pairs(ledger), random.Random(3)
    seconds = [query for _ in range(300) for query in pair(load, dice)[1][1].said]
    assert not [query for query in seconds if "nemesis_parents" in query]
    waiting = [query for query in seconds if query.startswith(("delete", "update")) and "skip locked" not in query]
    assert waiting == []
    assert set(FIRST) & set(SECOND) == {joined.add_note, joined.remove_note, joined.remove_tag}


def test_a_commit_without_an_answer_is_noted_as_such_and_what_follows_it_did_not_happen(ledger: Ledger) -> None:
    load = Pairs(ledger)
    with pytest.raises(psycopg.OperationalError):
        pair(load, random.Random(4), "commit", "commit")
    assert ledger.entries
    assert not any(entry.committed for entry in ledger.entries)
    assert load.refused >= 1


def test_a_connection_that_breaks_before_any_commit_leaves_nothing_in_the_ledger(ledger: Ledger) -> None:
    load = Pairs(ledger)
    with pytest.raises(psycopg.OperationalError):
        pair(load, random.Random(5), "", "write")
    assert (ledger.entries, load.refused) == ([], 2)


def routed_pairs(ledger: Ledger) -> Pairs:
    return PARTS["routed"].pairs(ledger, TEXT)


def test_a_customers_change_refreshes_the_orders_that_it_finds_after_its_lock(ledger: Ledger) -> None:
    load, dice = routed_pairs(ledger), random.Random(6)
    for _ in range(100):
        _, (first, _) = pair(load, dice)
        lock, change, look = [query for query in first.said if query != joined.ASK]
        assert (lock, look) == (routed.LOCK, routed.ORDERS_OF)
        assert "nemesis_customers" in change
        assert {"o1", "o2"} <= set(first.refreshed)
    assert {(entry.op, entry.entity_type) for entry in ledger.entries} == {("refresh", "order")}


def test_an_order_moves_only_to_a_customer_that_nobody_changes_and_waits_for_none(ledger: Ledger) -> None:
    load, dice = routed_pairs(ledger), random.Random(7)
    seconds = [query for _ in range(200) for query in pair(load, dice)[1][1].said]
    assert routed.LOCK not in seconds
    assert seconds.count(routed.TRY_TO_SHARE) == seconds.count(routed.KEEP) > 0
    taken = Scripted("b", [], free=False)
    routed.keep(cast(Connection, taken), "o1", dice)
    assert taken.said == [routed.TRY_TO_SHARE, routed.CHANGE]


def test_half_of_the_events_carry_payloads_and_a_fifth_are_of_the_routed_type() -> None:
    parts = (joined, routed, linked)
    pairs = [part.SHARE_OF_ACTS * part.EVENTS for part in parts]
    single = 1 - sum(part.SHARE_OF_ACTS for part in parts)
    of_joined, of_routed, of_linked = (events / (single + sum(pairs)) for events in pairs)
    assert (0.25 < of_joined < 0.3, 0.19 < of_routed < 0.22, 0.07 < of_linked < 0.1) == (True, True, True)


def test_whoever_renames_asks_for_no_refresh_and_half_of_the_renames_commit_last(ledger: Ledger) -> None:
    load, dice = PARTS["linked"].pairs(ledger, TEXT), random.Random(8)
    both = [pair(load, dice)[1] for _ in range(200)]
    assert {query for first, second in both for query in first.refreshed + second.refreshed} == set()
    assert {query for first, _ in both for query in first.said} == {linked.RENAME, linked.RENAME_HOUSE}
    assert 60 < load.swapped < 140
    assert ledger.entries == []


def test_a_link_is_made_without_waiting_for_the_rename_that_it_overlaps(ledger: Ledger) -> None:
    load, dice = PARTS["linked"].pairs(ledger, TEXT), random.Random(9)
    seconds = {query for _ in range(200) for query in pair(load, dice)[1][1].said}
    assert seconds == {linked.MOVE_AUTHOR, linked.MOVE_BOOK, linked.REMOVE_BOOK, linked.ADD_BOOK}
    assert [query for query in seconds if "skip locked" not in query] == [linked.ADD_BOOK]
