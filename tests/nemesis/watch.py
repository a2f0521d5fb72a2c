"""Owns the samples during the storm: some documents many times per second, table and processes once per second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.nemesis import joined
from tests.nemesis.gang import Gang
from tests.nemesis.ground import DATABASE_DOWN, ELASTIC_DOWN, INDEX, Ground
from tests.nemesis.load import ENTITIES, HOT
from tests.nemesis.recipe import Recipe
from tests.nemesis.schedule import KINDS

DOCUMENTS_SECONDS = 0.2
TABLE_SECONDS = 1.0
TABLE = """
select (select count(*) from search_outbox_events where processed_at is null and failed_at is null)::int,
       (select count(*) from search_outbox_events where failed_at is not null)::int,
       (select count(*) from search_outbox_events where status = 'processing' and processed_at is null
           and failed_at is null and lease_until < clock_timestamp() - interval '3 seconds')::int,
       (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
         where state like 'idle in transaction%%' and application_name like 'outbox%%'),
       (select count(*) from pg_stat_activity where application_name like 'outbox-%%')::int
"""


def followed(recipe: Recipe) -> list[str]:
    """Documents that are changed, deleted and made again all the time, and some of the many."""
    numbers, ids = [*range(HOT), *range(HOT, ENTITIES, ENTITIES // 48)], recipe.ids
    of_joined = joined.followed(ids) if recipe.has("joined") else []
    return [f"{KINDS[n % 2]}:{ids.typed(f'e{n}')}" for n in numbers] + of_joined


class Watch:
    """Two threads. seen.ndjson: versions of the followed documents when they change; timeline.ndjson: the rest."""

    def __init__(self, ground: Ground, gang: Gang, folder: Path) -> None:
        self._ground = ground
        self._gang = gang
        self._folder = folder
        self._followed = followed(ground.recipe)
        self._stop = threading.Event()
        self._looks = (("seen", self._documents, DOCUMENTS_SECONDS), ("timeline", self._table, TABLE_SECONDS))
        self._threads: list[threading.Thread] = []
        self._versions: dict[str, int] = {}
        self._before = 0.0
        self._connection: psycopg.Connection[Any] | None = None
        self.phase = "storm"
        self.calm = False  # nobody is frozen and no connection is blocked: what lasts now is nobody's fault but ours
        self.looks = 0
        self.last: dict[str, Any] = {}

    def start(self) -> None:
        for name, look, seconds in self._looks:
            thread = threading.Thread(target=self._run, args=(name, look, seconds), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()
        last = {"at": time.time(), "before": self._before, "life": -1, "index": "", "changed": {}, "final": True}
        with (self._folder / "seen.ndjson").open("a", encoding="utf-8") as file:
            file.write(json.dumps(last) + "\n")

    def _run(self, name: str, look: Callable[[], dict[str, Any] | None], seconds: float) -> None:
        with (self._folder / f"{name}.ndjson").open("a", encoding="utf-8") as file:
            while not self._stop.wait(seconds):
                if line := look():
                    file.write(json.dumps(line) + "\n")
                    file.flush()

    def _documents(self) -> dict[str, Any] | None:
        """A version of 0 means absent. `life` tells which run of Elasticsearch said so, `before` when it was read last:
        until then everything was as it had been."""
        life, at = self._ground.elastic_lives, time.time()
        try:
            docs = self._ground.elastic.options(request_timeout=5).mget(index=INDEX, ids=self._followed, source=False)
        except ELASTIC_DOWN:
            return None
        if life != self._ground.elastic_lives:
            return None
        self.looks += 1
        found = {doc["_id"]: doc.get("_version", 0) if doc.get("found") else 0 for doc in docs["docs"]}
        changed = {name: version for name, version in found.items() if self._versions.get(name) != version}
        self._versions, before, self._before = found, self._before, at
        index = docs["docs"][0]["_index"]
        return {"at": at, "before": before, "life": life, "index": index, "changed": changed} if changed else None

    def _table(self) -> dict[str, Any]:
        line: dict[str, Any] = {"at": round(time.time(), 2), "phase": self.phase, "calm": self.calm}
        try:
            if self._connection is None or self._connection.closed:
                options = "-c statement_timeout=3000"
                url = self._ground.database_url
                self._connection = psycopg.connect(url, autocommit=True, connect_timeout=2, options=options)
            names = ("open", "failed", "stuck", "idle_in_transaction", "connections")
            row = self._connection.execute(TABLE).fetchone()
            line |= dict(zip(names, row or (), strict=False))
        except (*DATABASE_DOWN, psycopg.Error):
            if self._connection is not None:
                self._connection.close()
        line["workers"] = {worker.label: _size(worker.pid) for worker in self._gang.workers() if worker.running}
        self.last = line
        return line


def _size(pid: int) -> list[int]:
    """Megabytes and open files."""
    try:
        process = psutil.Process(pid)
        return [process.memory_info().rss // 1_000_000, process.num_fds()]
    except psutil.Error:
        return []
