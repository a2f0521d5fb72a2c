"""Owns the four workers of a nemesis: started, caught with rows held, frozen, killed, drained. Judges nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from labs.recorder import samples
from labs.worker import Worker, log_facts
from outbox.embedded.process import free_port
from tests.nemesis.ground import DATABASE_DOWN, Ground
from tests.nemesis.schedule import WORKERS
from tests.nemesis.waiting import wait

LEASE_SECONDS = 3.0
RETENTION_SECONDS = 15.0  # the prunes of people take what is five seconds old
SETTINGS: Mapping[str, str] = {
    "OUTBOX_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "0.5",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.2",
    "OUTBOX_BATCH_SIZE": "20",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.3",
    "OUTBOX_MAX_BACKOFF_SECONDS": "2",
    "OUTBOX_MAX_ATTEMPTS": "50",
    "OUTBOX_SHUTDOWN_GRACE_SECONDS": "8",
    "ELASTIC_TIMEOUT_SECONDS": "3",
    "OUTBOX_OUTAGE_POLICY": "pause",
}
# What is done is soon gone: whoever judges goes by the ledger and by the recorded steps.
PRUNING: Mapping[str, str] = {
    "OUTBOX_RETENTION_DAYS": f"{RETENTION_SECONDS / 86_400:.9f}",
    "OUTBOX_PRUNE_INTERVAL_SECONDS": "1",
}


@dataclass
class Slot:
    """One worker id. `busy` while someone does something to it: two faults never meet in one worker."""

    name: str
    port: int
    starts: int = 0
    worker: Worker | None = None
    busy: bool = False
    logs: list[Path] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hand:
    """What a worker held at a moment: tokens and rows."""

    tokens: tuple[str, ...] = ()
    rows: int = 0


class Gang:
    def __init__(self, ground: Ground, folder: Path) -> None:
        self._ground = ground
        self._folder = folder
        self.slots = {name: Slot(name, free_port()) for name in WORKERS}
        self._lock = threading.Lock()
        # A daemon ends with the thread that started it (PR_SET_PDEATHSIG): this one lives as long as we do.
        self._spawner = ThreadPoolExecutor(1, "spawner")
        self.exit_codes: dict[str, int | None] = {}

    # Who

    @contextmanager
    def someone(self, wanted: str) -> Iterator[Slot]:
        """The wanted worker, or the next one to which nothing is being done."""
        slot = self._take(wanted)
        try:
            yield slot
        finally:
            slot.busy = False

    def _take(self, wanted: str) -> Slot:
        first = WORKERS.index(wanted)
        while True:
            with self._lock:
                for place in range(len(WORKERS)):
                    slot = self.slots[WORKERS[(first + place) % len(WORKERS)]]
                    if not slot.busy:
                        slot.busy = True
                        return slot
            time.sleep(0.05)

    def workers(self) -> list[Worker]:
        return [slot.worker for slot in self.slots.values() if slot.worker is not None]

    # Starting and ending

    def start(self, slot: Slot, settings: Mapping[str, str] | None = None) -> Worker:
        slot.starts += 1
        label = f"{slot.name}.{slot.starts}"
        own = {
            **SETTINGS,
            **PRUNING,
            **self._ground.recipe.settings,
            **self._ground.road(),
            "OUTBOX_METRICS_PORT": str(slot.port),
            **(settings or {}),
        }
        worker = self._spawner.submit(Worker, slot.name, label, own, self._folder, None).result()
        slot.worker = worker
        slot.logs.append(worker.log)
        return worker

    def start_all(self) -> None:
        for slot in self.slots.values():
            self.start(slot)
        self.await_ready()

    def await_ready(self, within: float = 60.0) -> None:
        for worker in self.workers():
            if not wait(partial(_answers, worker), within):
                raise RuntimeError(f"{worker.label} does not answer:\n{worker.tail()}")

    def revive(self) -> None:
        """Nobody is frozen, everybody runs."""
        for slot in self.slots.values():
            if slot.worker is None or not slot.worker.running:
                self.start(slot)
            assert slot.worker is not None
            slot.worker.thaw()

    def drain(self) -> None:
        for worker in self.workers():
            worker.ask_to_stop()
        for worker in self.workers():
            # One signal: a second one would mean at once.
            self.exit_codes[worker.label] = worker.wait(60)

    def close(self) -> None:
        for worker in self.workers():
            worker.kill()
        self._spawner.shutdown()

    # Catching

    def catch(self, slot: Slot, within: float) -> Hand:
        """Freeze it in a moment when it holds rows; after `within` in whatever moment it is. It stays frozen."""
        deadline = time.monotonic() + within
        worker = slot.worker
        assert worker is not None
        while worker.running and time.monotonic() < deadline:
            if self.hand(slot).rows:
                worker.freeze()
                if (hand := self.hand(slot)).rows:
                    return hand
                worker.thaw()
            time.sleep(0.03)
        worker.freeze()
        return self.hand(slot)

    def hand(self, slot: Slot) -> Hand:
        assert slot.worker is not None
        try:
            leases = self._ground.leases_of(slot.name, slot.worker.pid)
        except DATABASE_DOWN:
            return Hand()
        return Hand(tuple(token for token, _ in leases), sum(rows for _, rows in leases))

    # Reading

    def mark(self) -> dict[Path, int]:
        """Where every log ends now."""
        return {log: log.stat().st_size for log in self.logs()}

    def logs(self) -> list[Path]:
        return [log for slot in self.slots.values() for log in list(slot.logs) if log.exists()]

    def since(self, mark: Mapping[Path, int]) -> Iterator[dict[str, Any]]:
        """What the workers have said since then, in no particular order."""
        for slot in self.slots.values():
            for log in slot.logs[-3:]:
                yield from log_facts(log, mark.get(log, 0))

    def noticed(self, mark: Mapping[Path, int], events: Collection[str], within: float) -> Counter[str]:
        """What the workers said about it, waiting a little for the first word."""

        def said() -> Counter[str]:
            names = (str(fact.get("event")) for fact in self.since(mark))
            return Counter(name for name in names if name in events)

        return wait(said, within) or Counter()

    def total(self, metric: str) -> float:
        """Over the pages of all workers now, whatever the labels."""
        pages = [samples(self._metrics(worker)) for worker in self.workers() if worker.running]
        return sum(value for page in pages for name, value in page.items() if name.split("{")[0] == metric)

    @staticmethod
    def _metrics(worker: Worker) -> str:
        """On a busy machine a page takes its time; without it the sum would be a lie."""
        for _ in range(10):
            status, page = worker.page("/metrics", 5.0)
            if status == 200:
                return page
        raise RuntimeError(f"{worker.label} shows no metrics")


def _answers(worker: Worker) -> bool:
    return worker.page("/healthz")[0] == 200
