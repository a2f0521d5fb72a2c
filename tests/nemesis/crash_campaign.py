"""Owns one crash point's rounds: events, a worker that dies there, another that finishes; then the evidence."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
from elasticsearch import Elasticsearch
from psycopg.rows import dict_row

from labs.addresses import known_as
from labs.collect import STEPS
from labs.invariants import RECLAIMER
from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import CANARY, time_ordered_id
from labs.worker import environment
from outbox.embedded.process import free_port
from tests.fixtures.starting import WARM
from tests.fixtures.waiting import eventually
from tests.fixtures.warm import Forked
from tests.nemesis import crash_worker
from tests.nemesis.collect import VIEW, collect
from tests.nemesis.crash_hooks import MARK
from tests.nemesis.evidence import Evidence
from tests.nemesis.gang import SETTINGS
from tests.nemesis.ground import make_tables
from tests.nemesis.load import is_bad

PATIENCE_SECONDS = 240.0  # seconds alone; a busy machine takes its time
OPEN = "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
INSERT = (
    "insert into search_outbox_events (id, entity_type, entity_id, op, payload) values (%s, 'thing', %s, %s, %s)"
    " returning event_version"
)
BOOKS_OF_ONE = "insert into nemesis_books select 'b' || n, 'a1', 'book ' || n from generate_series(1, 35) n"


@dataclass
class Campaign:
    """All rounds of one point, in a database and an index of its own."""

    point: str
    number: int
    database_url: str
    elastic: Elasticsearch
    elastic_url: str
    index: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    deaths: int = 0
    starts: int = 0
    linked: bool = False  # with an author's books, attached

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        self.ledger = Ledger(self.folder / "ledger.ndjson")
        self.dice = random.Random(self.point)
        self.program = WARM.program()  # here, because campaigns go on in threads
        with self.connect() as connection:
            connection.execute(STEPS.read_bytes())

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.database_url, autocommit=True, **more)

    def value(self, query: LiteralString) -> Any:
        with self.connect() as connection:
            row = connection.execute(query).fetchone()
            return row[0] if row else None

    def dicts(self, query: LiteralString) -> Iterator[dict[str, Any]]:
        with self.connect(row_factory=dict_row) as connection:
            yield from connection.execute(query)

    # Events

    def commit(self, n: int, *, bad: bool = False) -> None:
        with self.connect() as connection:
            for _ in range(n):
                self._commit(connection, bad)

    def link(self) -> None:
        """Give an author books, which every change of the author refreshes."""
        self.linked = True
        with self.connect() as connection:
            make_tables(connection)
            connection.execute(BOOKS_OF_ONE)

    def rename(self) -> None:
        """One event, of as many documents as the author has books."""
        with self.connect() as connection:
            connection.execute("update nemesis_authors set name = name || '.' where id = 'a1'")

    def _commit(self, connection: psycopg.Connection[Any], bad: bool) -> None:
        id = next(str(id) for id in iter(time_ordered_id, None) if is_bad(str(id)) == bad)
        entity = f"p{self.number}-{self.dice.randrange(25)}"
        gone = not bad and self.dice.random() < 0.2
        revision: Any = "no number" if bad else self.dice.randrange(1000)
        document = {"title": entity, "content": CANARY, "revision": revision}
        text = None if gone else json.dumps(document)
        op = "delete" if gone else "upsert"
        row = connection.execute(INSERT, [id, entity, op, text]).fetchone()
        assert row is not None
        body = "" if gone else digest(document)
        self.ledger.add(LedgerEntry(id, "thing", entity, op, int(row[0]), body, time.time()))

    # Workers

    def start(self, point: str | None, *argv: str, after: int = 1) -> tuple[Forked, Path]:
        self.starts += 1
        who = f"s{self.starts}"
        own = {
            **SETTINGS,
            "OUTBOX_BATCH_SIZE": "10",
            "OUTBOX_CONCURRENCY": "1",
            "OUTBOX_PREPARE": "false",  # one message per statement, so that a cut falls where it is meant to
            "DATABASE_URL": known_as(who, self.database_url),
            "ELASTIC_URL": self.elastic_url,
            "ELASTIC_INDEX": self.index,
            "OUTBOX_WORKER_ID": who,
            "OUTBOX_METRICS_PORT": str(free_port()),
            "OUTBOX_LOG_FORMAT": "json",
            **self.settings,
        }
        log = self.folder / "logs" / f"{who}.ndjson"
        env = environment(own) | ({crash_worker.POINT: point, crash_worker.AFTER: str(after)} if point else {})
        argv = ("outbox", *(argv or ("run",)))
        return Forked(self.program, list(argv), env, door=crash_worker.__name__, log=log), log

    def die(self, *argv: str, point: str | None = None, after: int | None = None) -> None:
        """One that dies at the point; that it did, and there, is asserted."""
        wanted = point or self.point
        status, text = self._ended(wanted, *argv, after=after or self.dice.randint(1, 3))
        assert status == -9, f"{wanted}: left with {status} instead of dying\n{text[-1500:]}"
        assert f"{MARK}{wanted}" in text, f"{wanted}: died elsewhere\n{text[-1500:]}"
        if point is None:
            self.deaths += 1

    def _ended(self, point: str | None, *argv: str, after: int = 1) -> tuple[int, str]:
        """What it left with and said."""
        process, log = self.start(point, *argv, after=after)
        return process.wait(PATIENCE_SECONDS), log.read_text(encoding="utf-8")

    def finish(self, over: Callable[[], bool] | None = None) -> None:
        """Another one takes it from there, to the end."""
        process, log = self.start(None)
        done = over or (lambda: self.value(OPEN) == 0)
        try:
            eventually(done, within=PATIENCE_SECONDS, every=0.1, what=f"{self.point}: everything settled")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{log.read_text(encoding='utf-8')[-3000:]}") from None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text(encoding="utf-8")[-1500:]

    # Judging

    @staticmethod
    def taken_back(found: Evidence) -> int:
        """Rows that a dead worker held, and that came back when its lease was over."""
        return sum(step["old_status"] == "processing" and step["app"] == RECLAIMER for step in found.steps)

    def _run(self, *argv: str) -> tuple[int, str]:
        """A command of the product, to its end; what it leaves with, and what it says."""
        return self._ended(None, *argv)

    def _password_seen(self) -> int:
        """In how many logs of workers and commands the database's password stands."""
        password = urlsplit(self.database_url).password
        assert password, "a database without a password shows nothing"
        logs = (self.folder / "logs").iterdir()
        return sum(password in log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def evidence(self) -> Evidence:
        self.ledger.close()
        self._run("migrate", "--by-entity")  # without the view, verify finds each entity's newest event by this index
        verify, said = self._run("verify", "--rate", "0", "--json")
        compared = re.search(r'"compared": ?[1-9]', said)
        assert compared, f"{self.point}: verify compared nothing\n{said[-1500:]}"
        chain, _ = self._run("audit", "verify")
        ours = (entry.document for entry in self.ledger.entries)
        collect(self.folder, self.dicts, self.elastic, self.index, ours, view=VIEW if self.linked else None)
        about = {
            "lease_seconds": 3.0,
            "max_attempts": int(SETTINGS["OUTBOX_MAX_ATTEMPTS"]),
            "final_verify": {"code": verify},
            "audit_verify": {"code": chain},
            "healed": 0.0,
            "joined_swapped": 0,
            "looks": 0,
            "problems": [],
            "password_seen": self._password_seen(),
            # What commands answered lies in logs/ too, and is read there.
            "answers": 0,
            "canary_seen": 0,
        }
        (self.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
        return Evidence(self.folder)
