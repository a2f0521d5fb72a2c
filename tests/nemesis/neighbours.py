"""Runs the lane of the neighbours: innocent events at one pace, calm, then beside poison, then calm again.

Two daemons as they come, on the servers of a nemesis, with a database and an index of their own; no other fault. It
leaves neighbours.json and innocents.ndjson in the folder, and judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from elasticsearch import Elasticsearch
from psycopg import sql
from psycopg.rows import dict_row

from labs.index import create as create_index
from labs.index import drop as drop_index
from labs.worker import Worker, log_facts
from outbox.embedded.process import free_port
from outbox.store.schema.migrate import migrate
from tests.fixtures.extremes import COLUMNS
from tests.nemesis.ground import Ground
from tests.nemesis.innocents import Innocents
from tests.nemesis.poison import FIRST_BAD_ID, KINDS, Brew, Row
from tests.nemesis.poisoner import Poisoner

SCHEMA = Path(__file__).with_name("neighbours.sql")
DATABASE = INDEX = "neighbours"
WORKERS = ("n1", "n2")
CALM, POISON, AFTER = "calm", "poison", "calm again"
SHORT_SECONDS, LONG_SECONDS = 6.0, 240.0
BITES_SECONDS = 60.0  # a busy machine takes its time until every kind has bitten once; alone it takes five
LEAST_STEADY_SECONDS = 60.0
LONG_FROM = 600.0  # seconds of storm
RATE = 50.0
# The defaults, but for these: item 3 is about `pause`; three attempts, so that retries come to their end; a document of
# 2.5 MB is too large then (see `TINY` in ground.py).
SETTINGS = {
    "OUTBOX_OUTAGE_POLICY": "pause",
    "OUTBOX_MAX_ATTEMPTS": "3",
    "OUTBOX_BATCH_BYTES": "1000000",
}
DRAIN_SECONDS = 60.0
# Two shards, of which this one node may hold one: what belongs to the other waits for ever.
HALF_RED = {"number_of_shards": 2, "routing.allocation.total_shards_per_node": 1, "refresh_interval": "1s"}
MAPPING = {"properties": {"kind": {"type": "keyword"}, "revision": {"type": "long"}, "content": {"type": "text"}}}
VIEW: LiteralString = """
create view search_documents as
select 'viewed'::text as entity_type, v.id as entity_id, computed(v) as document, {}::text as routing from viewed v
"""
STATES: LiteralString = """
select id, status, attempts, abandoned_count as abandoned, error_reason as reason, dead_reason, read_found
  from search_outbox_events where id = any (%s)
"""
# An innocent's number tells it from a poison of the view's type.
INNOCENT: LiteralString = (
    "entity_type in ('plain', 'viewed') and entity_id ~ '^[0-9]{1,6}$' and not id = any (%(poison)s)"
)
RESULTS: LiteralString = (
    "select extract(epoch from created_at)::float8, extract(epoch from processed_at - created_at)::float8, entity_type,"
    " op, status, attempts, error_reason from search_outbox_events where " + INNOCENT + " order by seq"
)
OPEN: LiteralString = (
    "select count(*) from search_outbox_events where processed_at is null and failed_at is null and " + INNOCENT
)
DISCARD: LiteralString = (
    "update search_outbox_events set status = 'discarded'"
    " where id = any (%s) and processed_at is null and failed_at is null"
)


def seconds_for(storm_seconds: float) -> float:
    """How long the lane is beside a storm: a few seconds in the tests, long enough for a p99 in a long run."""
    return LONG_SECONDS if storm_seconds >= LONG_FROM else SHORT_SECONDS


@dataclass
class Neighbours:
    """`with`out ceremony: `run()` makes everything and removes it."""

    ground: Ground
    folder: Path
    seconds: float
    seed: int
    say: Callable[[str], None]
    rate: float = RATE
    only: Collection[str] = ()
    phases: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        began = time.monotonic()
        poisoned = self.seconds / 2
        self.kinds = [name for name in self.only or KINDS if KINDS[name].patience_seconds < poisoned]
        with contextlib.ExitStack() as undo:
            self._url = undo.enter_context(self._database())
            self._there, away = undo.enter_context(self._index())
            self._connection = undo.enter_context(psycopg.connect(self._url, autocommit=True))
            self._connection.execute(SCHEMA.read_bytes())
            self._connection.execute(sql.SQL(VIEW).format(sql.Literal(self._there)))
            columns = self._connection.execute(COLUMNS).fetchall()
            brew, at_once = Brew(self.seed, columns, self._there, away), self.seconds < LEAST_STEADY_SECONDS
            self._poisoner = Poisoner(self._url, brew, self.seed, self.kinds, at_once=at_once)
            self._innocents = Innocents(self._url, self.seed, self.rate, self._there)
            self._workers = [undo.enter_context(self._worker(name)) for name in WORKERS]
            self._await_ready()
            self._three_phases(poisoned)
            self._collect(began)

    # The ground

    @contextlib.contextmanager
    def _database(self) -> Iterator[str]:
        """LATIN1: what leaves it must be UTF-8 all the same."""
        server = self.ground.postgres.url
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {DATABASE} template template0 encoding 'LATIN1' locale 'C'")
        try:
            url = self.ground.postgres.database_url(DATABASE)
            migrate(url)
            yield url
        finally:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"drop database if exists {DATABASE} with (force)")

    @contextlib.contextmanager
    def _index(self) -> Iterator[tuple[str, str]]:
        """Routings of the shard that is there, and of the one that is down."""
        elastic = self.ground.elastic
        try:
            create_index(elastic, INDEX, HALF_RED, MAPPING, wait="0")
            deadline = time.monotonic() + 60
            while (found := _routings(elastic)) is None:
                if time.monotonic() > deadline:
                    raise RuntimeError("no shard of the half red index has started")
                time.sleep(0.05)
            yield found
        finally:
            drop_index(elastic, INDEX)

    @contextlib.contextmanager
    def _worker(self, name: str) -> Iterator[Worker]:
        """Straight to the servers: no proxy slows it down, and the storm's tap does not see it."""
        own = {
            **SETTINGS,
            "DATABASE_URL": self._url,
            "ELASTIC_URL": self.ground.elasticsearch.url,
            "ELASTIC_INDEX": INDEX,
            "OUTBOX_METRICS_PORT": str(free_port()),
        }
        worker = Worker(name, name, own, self.folder / "neighbours", None)
        try:
            yield worker
        finally:
            worker.end()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 60
        for worker in self._workers:
            while worker.page("/readyz")[0] != 200:
                if time.monotonic() > deadline or not worker.running:
                    raise RuntimeError(f"{worker.label} does not answer:\n{worker.tail()}")
                time.sleep(0.05)

    # The phases

    def _three_phases(self, poisoned: float) -> None:
        """Calm before and after: a machine that became slower in between is not taken for a neighbour's fault."""
        self._innocents.start()
        self._phase(CALM, poisoned / 2)
        self._poisoner.start()
        self._phase(POISON, poisoned, until=self._all_have_bitten)
        self._poisoner.stop()
        self._states = self._look()
        self._heal()
        self._phase(AFTER, poisoned / 2)
        self._innocents.stop()
        self._await_done()

    def _phase(self, name: str, seconds: float, until: Callable[[], bool] = lambda: True) -> None:
        self.say(f"neighbours: {name}, {seconds:g} s, {self._innocents.committed} innocents so far")
        began = self._now()
        time.sleep(seconds)
        deadline = time.monotonic() + BITES_SECONDS
        while not until() and time.monotonic() < deadline:
            time.sleep(0.2)
        self.phases.append({"name": name, "began": began, "ended": self._now()})

    def _look(self) -> list[Row]:
        """What became of the poison so far."""
        made = dict(self._poisoner.made)
        with self._connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(STATES, [list(made)]).fetchall()
        return [{**row, "kind": made[row["id"]]} for row in rows]

    def _all_have_bitten(self) -> bool:
        rows = self._look()
        return all(self._bites(name, rows) for name in self.kinds)

    def _bites(self, name: str, rows: list[Row]) -> int:
        return sum(KINDS[name].bites(row) for row in rows if row["kind"] == name) + self._poisoner.held[name]

    def _now(self) -> float:
        row = self._connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
        assert row is not None
        return float(row[0])

    def _heal(self) -> None:
        """No poison is left; what was made beside it is done before the calm that follows counts."""
        self._connection.execute("drop trigger refuse_done on search_outbox_events")
        self._connection.execute("drop trigger refuse_ends on search_outbox_events")
        self._connection.execute("update viewed set title = 'fixed' where id > %s", [FIRST_BAD_ID])
        self._connection.execute(DISCARD, [list(self._poisoner.made)])
        self._await_done(before=self._now())

    def _await_done(self, before: float | None = None) -> None:
        query = OPEN + " and (%(before)s::float8 is null or created_at < to_timestamp(%(before)s))"
        named = {"poison": list(self._poisoner.made), "before": before}
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            row = self._connection.execute(query, named).fetchone()
            if row is not None and row[0] == 0:
                return
            time.sleep(0.05)

    # What is left

    def _collect(self, began: float) -> None:
        named = {"poison": list(self._poisoner.made)}
        rows = self._connection.execute(RESULTS, named).fetchall()
        with (self.folder / "innocents.ndjson").open("w", encoding="utf-8") as lines:
            lines.write(json.dumps(["created", "latency", "type", "op", "status", "attempts", "reason"]) + "\n")
            lines.writelines(json.dumps(row) + "\n" for row in rows)
        facts = [fact for worker in self._workers for fact in log_facts(worker.log)]
        told = {
            "seconds": round(time.monotonic() - began, 1),
            "asked_seconds": self.seconds,
            "rate": self.rate,
            "workers": len(WORKERS),
            "phases": self.phases,
            "committed": self._innocents.committed,
            "late": self._innocents.late,
            "documents": self._innocents.documents,
            "wrong": list(self._innocents.wrong(self.ground.elastic, INDEX)),
            "poison": self._poison(),
            "left_out": [name for name in self.only or KINDS if name not in self.kinds],
            "warnings": Counter(fact["event"] for fact in facts if fact.get("level") in ("warning", "error", "text")),
            "ended": [worker.label for worker in self._workers if not worker.running],
            "problems": [*filter(None, [self._innocents.problem]), *self._poisoner.problems],
        }
        for worker in self._workers:
            worker.ask_to_stop()
        (self.folder / "neighbours.json").write_text(json.dumps(told, indent=1, default=str), encoding="utf-8")

    def _poison(self) -> dict[str, dict[str, Any]]:
        """Of each kind: how many were made, how many bit by the table, and in which states they were at the end."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.kinds:
            own = [row for row in self._states if row["kind"] == name]
            bit = self._bites(name, own)
            seen = Counter(" ".join(filter(None, (row["status"], (row["reason"] or "")[:40]))) for row in own)
            done = self._poisoner.tried[name] - self._poisoner.refused[name]
            found[name] = {"made": done, "bit": bit, "states": dict(seen), "meant": KINDS[name].meant}
        return found


def _routings(elastic: Elasticsearch) -> tuple[str, str] | None:
    there = away = None
    for n in range(100):
        copies = elastic.search_shards(index=INDEX, routing=str(n))["shards"][0]
        if any(copy["state"] == "STARTED" for copy in copies):
            there = there or str(n)
        else:
            away = away or str(n)
        if there and away:
            return there, away
    return None
