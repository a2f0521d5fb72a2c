"""Owns the kinds of poison of the lane of the neighbours: which rows, how often, and how one is seen to have bitten.

Someone who holds locks or changes the table is in poisoner.py. It touches no server.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.fixtures.extremes import extremes

Row = dict[str, Any]
# What the view's `computed` does with a row of this name: sleeps, or raises this SQLSTATE; see neighbours.sql.
SLOW, DIVISION, DAMAGED, NOTHING, ARRAY = "slow", "state 22012", "state XX001", "null", "array"
VIEWED, REFUSED, NEVER = "viewed", "refused", "never"
TOO_LARGE_BYTES = 2_500_000  # neighbours.py sets http.max_content_length below it
FIRST_BAD_ID = 1_000_000


@dataclass(frozen=True, slots=True)
class PoisonKind:
    """`every_seconds` on an average. `bites`: does the row, as the table has it in the end, show what is meant?"""

    name: str
    every_seconds: float
    bites: Callable[[Row], bool]
    meant: str
    patience_seconds: float = 2.0  # until it shows


def _failed(*reasons: str) -> Callable[[Row], bool]:
    return lambda row: row["status"] == "failed" and row["reason"] in reasons


def _waits(reason: str) -> Callable[[Row], bool]:
    """Tried, and put off or failed."""
    return lambda row: row["reason"] == reason and row["status"] in ("pending", "failed", "processing")


def _ended(row: Row) -> bool:
    return row["status"] not in ("pending", "processing")


def _never(_: Row) -> bool:
    return False  # not known from rows: whoever holds the lock counts


REJECTED = _failed("es_rejected_document")
DETERMINISTIC = _failed("deterministic_exception")
LOCKED_EVENT, LOCKED_LEASE, ALTERED = "locked_event", "locked_lease", "altered_column"
KINDS: dict[str, PoisonKind] = {
    kind.name: kind
    for kind in (
        PoisonKind("long_id", 2.0, DETERMINISTIC, "an id of 12 KB, of upserts and deletes: failed"),
        PoisonKind("extreme", 0.5, _ended, "any extreme value in any column: over in the end, whatever it is"),
        PoisonKind("unknown_op", 4.0, DETERMINISTIC, "an op that nobody knows: failed"),
        PoisonKind("mapping", 2.0, REJECTED, "a number that is none: refused by Elasticsearch"),
        PoisonKind("nested", 3.0, REJECTED, "400 and 1,500 nested arrays: refused by Elasticsearch"),
        PoisonKind("immense_term", 3.0, REJECTED, "a keyword of 40 KB: refused by Elasticsearch"),
        PoisonKind("too_large", 10.0, _failed("too_large"), "a document over http.max_content_length: failed"),
        PoisonKind("red_shard", 3.0, _waits("es_5xx"), "a document of a shard that is down: waits"),
        PoisonKind(
            "no_verdict_done", 5.0, lambda row: row["abandoned"] > 0, "done cannot be written: abandoned, failed"
        ),
        PoisonKind(
            "no_verdict_at_all", 20.0, lambda row: row["abandoned"] > 0, "neither done nor failed can be written"
        ),
        PoisonKind("broken_row", 2.0, DETERMINISTIC, "a row of the view that divides by zero: failed"),
        PoisonKind("overtaxing_row", 5.0, _waits("unknown_exception"), "a row of the view on a damaged page: retried"),
        PoisonKind("slow_row", 30.0, _waits("timeout"), "a row of the view that takes half a minute: retried", 14.0),
        PoisonKind("no_document", 3.0, DETERMINISTIC, "a row of the view with null or an array for a document: failed"),
        PoisonKind(
            "no_such_id", 2.0, lambda row: row["read_found"] is False, "a refresh of an id that is no number: gone"
        ),
        PoisonKind(LOCKED_EVENT, 5.0, _never, "someone idle in a transaction on a claimed event, for 3 s"),
        PoisonKind(LOCKED_LEASE, 10.0, _never, "someone idle in a transaction on a lease, for 3 s"),
        PoisonKind(ALTERED, 10.0, _never, "a column that gets another type"),
    )
}


class Brew:
    """Makes rows of each kind, by the seed. `there`, `away`: routings of the two shards."""

    def __init__(self, seed: int, columns: list[tuple[str, str]], there: str, away: str) -> None:
        self._dice = random.Random(f"{seed}:poison")
        self._there, self._away = there, away
        self._number = count(1)
        self._extremes = self._shuffled(columns)
        self._turn = {name: count() for name in KINDS}

    def _shuffled(self, columns: list[tuple[str, str]]) -> Iterator[Row]:
        while True:
            rows = [row for _, row in extremes(columns)]
            self._dice.shuffle(rows)
            yield from rows

    def row(self, kind: str) -> tuple[Row, Row | None]:
        """An event, and the row of the view's table that it needs."""
        n, turn = next(self._number), next(self._turn[kind])
        event: Row = {"entity_type": "poison", "entity_id": f"{kind}-{n}", "op": "upsert", "routing": self._there}
        if kind in BAD_ROWS:
            bad = BAD_ROWS[kind]
            id = FIRST_BAD_ID + n
            viewed = {"id": id, "title": bad[turn % len(bad)], "content": "", "revision": n}
            return event | {"entity_type": VIEWED, "entity_id": str(id), "op": "refresh"}, viewed
        return event | self._more(kind, turn), None

    def _more(self, kind: str, turn: int) -> Row:
        if kind == "extreme":
            return next(self._extremes)
        if kind == "red_shard":
            return {"routing": self._away, "payload": "{}"}
        return ROWS[kind](turn)


def _long_id(turn: int) -> Row:
    op = ("upsert", "delete")[turn % 2]
    return {"entity_id": secrets.token_hex(6_000), "op": op, "payload": "{}" if op == "upsert" else None}


def _nested(turn: int) -> Row:
    deep = (400, 1_500)[turn % 2]
    return {"payload": '{"revision": ' + "[" * deep + '"x"' + "]" * deep + "}"}


def _no_such_id(turn: int) -> Row:
    no_number = ("abc", "1e3", "99999999999999999999", "1 ", "é", "0x10")[turn % 6]
    return {"entity_type": VIEWED, "entity_id": no_number, "op": "refresh"}


ROWS: dict[str, Callable[[int], Row]] = {
    "long_id": _long_id,
    "unknown_op": lambda _: {"op": "explode"},
    "mapping": lambda _: {"payload": json.dumps({"revision": "no number"})},
    "nested": _nested,
    "immense_term": lambda _: {"payload": json.dumps({"kind": secrets.token_hex(20_000)})},
    "too_large": lambda _: {"payload": json.dumps({"content": secrets.token_hex(TOO_LARGE_BYTES // 2)})},
    "no_verdict_done": lambda _: {"entity_type": REFUSED, "payload": "{}"},
    "no_verdict_at_all": lambda _: {"entity_type": NEVER, "payload": "{}"},
    "no_such_id": _no_such_id,
    LOCKED_EVENT: lambda _: {"payload": "{}"},
    # Claimed alone, as one that was abandoned before: nobody innocent is in its lease.
    LOCKED_LEASE: lambda _: {"payload": "{}", "abandoned_count": 3},
}
BAD_ROWS: dict[str, tuple[str, ...]] = {
    "broken_row": (DIVISION,),
    "overtaxing_row": (DAMAGED,),
    "slow_row": (SLOW,),
    "no_document": (NOTHING, ARRAY),
}
