"""Samples the table, the daemons' pages and some documents twice per second while a lab runs, without proxies."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from elasticsearch import ApiError, Elasticsearch, TransportError
from prometheus_client.parser import text_string_to_metric_families

from labs.ledger import Ledger
from labs.worker import Worker

INTERVAL_SECONDS = 0.5
CANARIES = 30  # documents whose versions are polled during the whole run

COUNTS = "select status, count(*)::int from search_outbox_events group by status"
REST = """
select coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8,
       count(*) filter (where status = 'processing' and lease_until < clock_timestamp())::int,
       coalesce(max(attempts), 0)::int
  from search_outbox_events where processed_at is null and failed_at is null
"""


def samples(page: str, *, buckets: bool = False) -> dict[str, float]:
    """`outbox_*` values of a /metrics page by name and labels, without the label `projection`."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if not sample.name.startswith("outbox_") or (sample.name.endswith("_bucket") and not buckets):
                continue
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "projection")
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


class Recorder:
    """A thread that writes timeline.ndjson. A server that does not answer is left out of that line."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        elastic: Elasticsearch,
        index: str,
        workers: Callable[[], list[Worker]],
        ledger: Ledger,
        clock: Callable[[], float],
        *,
        is_stream: bool = False,
    ) -> None:
        """`is_stream`: with Kafka what is done leaves no row; the daemons' metrics tell how much it is."""
        self._file = (folder / "timeline.ndjson").open("w", encoding="utf-8")
        self._folder = folder
        self._url = database_url
        # A short timeout: the recorder must not hang on a server that a lab has stopped.
        self._elastic = elastic.options(request_timeout=1)
        self._index = index
        self._workers = workers
        self._ledger = ledger
        self._clock = clock
        self._is_stream = is_stream
        self._processed: dict[str, float] = {}  # of each daemon, also after its end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()
        self.phase = "baseline"
        self.last: dict[str, Any] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        with contextlib.suppress(psycopg.Error):
            if self._connection is not None:
                self._connection.close()
        self._file.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self.sample()
            self._stop.wait(max(0.05, INTERVAL_SECONDS - (time.monotonic() - began)))

    def sample(self) -> dict[str, Any]:
        with self._lock:
            line = {"t": round(self._clock(), 3), "phase": self.phase, **self._table(), "workers": self._pages()}
            if self._is_stream and "status" in line:
                line["status"] |= self._of_stream(line["workers"])
            line["canaries"] = self._canaries()
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            self.last = line
            return line

    def keep_pages(self, moment: str) -> None:
        """The whole /metrics page of each daemon, for what is not in the timeline."""
        folder = self._folder / "metrics"
        folder.mkdir(exist_ok=True)
        for worker in self._workers():
            status, body = worker.page("/metrics")
            if status == 200:
                (folder / f"{worker.label}-{moment}.prom").write_text(body, encoding="utf-8")

    def _table(self) -> dict[str, Any]:
        try:
            if self._connection is None:
                options = "-c statement_timeout=2000"
                self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=1, options=options)
            status = dict(self._connection.execute(COUNTS).fetchall())
            rest = self._connection.execute(REST).fetchone()
            assert rest is not None
            return {"status": status, "oldest": rest[0], "stuck": rest[1], "most_attempts": rest[2]}
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                if self._connection is not None:
                    self._connection.close()
            self._connection = None
            return {}

    def _of_stream(self, workers: dict[str, Any]) -> dict[str, int]:
        """A record that was sent twice is counted twice: at most what was committed is done."""
        for label, worker in workers.items():
            counted = (worker.get("m") or {}).get("outbox_processed_total")
            self._processed[label] = self._processed.get(label, 0.0) if counted is None else counted
        committed = self._ledger.committed
        done = min(int(sum(self._processed.values())), committed)
        return {"done": done, "pending": committed - done}

    def _pages(self) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for worker in self._workers():
            if not worker.running:
                seen[worker.label] = {"up": False}
                continue
            if worker.frozen:
                seen[worker.label] = {"up": True, "frozen": True}
                continue
            status, page = worker.page("/metrics", 0.8)
            ready, body = worker.page("/readyz", 0.8)
            values = samples(page) if status == 200 else {}
            seen[worker.label] = {"up": True, "ready": ready, "state": _state(body), "m": values}
        return seen

    def _canaries(self) -> dict[str, int]:
        """Version of each canary document, 0 if absent. Empty while Elasticsearch does not answer."""
        names = list(dict.fromkeys(entry.document for entry in self._ledger.entries[: CANARIES * 3]))[:CANARIES]
        if not names:
            return {}
        try:
            docs = self._elastic.mget(index=self._index, ids=names, source=False)["docs"]
        except (ApiError, TransportError):
            return {}
        return {doc["_id"]: doc.get("_version", 0) if doc.get("found") else 0 for doc in docs if "error" not in doc}


def _state(readyz: str) -> str:
    try:
        return str(json.loads(readyz)["status"])
    except (ValueError, KeyError, TypeError):
        return ""
