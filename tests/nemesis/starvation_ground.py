"""Owns the world of the lane starvation: small disks under both servers, a PostgreSQL whose clock can be set, and
workers in control groups with what deploy/ ships. It starves nobody."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from labs.faketime import library
from labs.worker import Worker
from outbox.embedded import EmbeddedPostgres
from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.opensearch import EmbeddedOpenSearch
from outbox.embedded.process import Command
from outbox.embedded.products import ELASTICSEARCH, release_of
from outbox.embedded.search_server import EmbeddedSearch
from tests.nemesis.gang import Gang, Slot
from tests.nemesis.ground import Ground
from tests.nemesis.small_disk import WATERMARKS, SmallDisk
from tests.nemesis.starvation_groups import Group, shipped_bytes

LEASE_SECONDS = 15.0
# As they are by default, but for a lease and attempts that suit minutes instead of hours.
SHIPPED: Mapping[str, str] = {
    "OUTBOX_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "OUTBOX_SHUTDOWN_GRACE_SECONDS": "25",
    "OUTBOX_BATCH_SIZE": "500",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.5",
    "OUTBOX_BASE_BACKOFF_SECONDS": "1",
    "OUTBOX_MAX_BACKOFF_SECONDS": "5",
    "ELASTIC_TIMEOUT_SECONDS": "30",
}
FULL = {
    **WATERMARKS,
    # Two minutes by default, for which a server with enough space again elects no master.
    "monitor.fs.health.refresh_interval": "5s",
}


class StarvedPostgres(SmallDisk, EmbeddedPostgres):
    megabytes = 700

    def _command(self) -> Command:
        """Under libfaketime, where it is installed: its clock follows a file."""
        command = super()._command()
        if (preload := library()) is None:
            return command
        env = {
            **command.env,
            "LD_PRELOAD": str(preload),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        return Command(command.argv, command.cwd, env, command.stop_signal)

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    def set_clock(self, seconds: int) -> None:
        self._account.give_file(self.clock, f"{seconds:+d}s\n")

    def _prepare(self) -> None:
        super()._prepare()
        if not self.clock.exists():
            self.set_clock(0)


class StarvedElasticsearch(SmallDisk, EmbeddedElasticsearch):
    megabytes = 700


class StarvedOpenSearch(SmallDisk, EmbeddedOpenSearch):
    megabytes = 700


class StarvationGround(Ground):
    POSTGRES: ClassVar[Mapping[str, str]] = {"max_wal_size": "96MB", "min_wal_size": "32MB", "shared_buffers": "64MB"}
    postgres: StarvedPostgres

    def _new_postgres(self, folder: Path) -> EmbeddedPostgres:
        server = StarvedPostgres(folder, settings=self.POSTGRES)
        self._undo.callback(server.unmount)
        server.mount()
        return server

    def _new_search(self, folder: Path) -> EmbeddedSearch:
        kind = StarvedElasticsearch if release_of(self._release).product == ELASTICSEARCH else StarvedOpenSearch
        server = kind(folder, version=self._release, settings=FULL, heap="768m")
        self._undo.callback(server.unmount)
        server.mount()
        return server

    def __enter__(self) -> StarvationGround:
        with contextlib.ExitStack() as undo:
            self._undo = undo
            super().__enter__()
            self._mounts = undo.pop_all()
        return self

    def __exit__(self, *told: object) -> None:
        try:
            super().__exit__(*told)
        finally:
            self._mounts.close()


class StarvedGang(Gang):
    """Each worker in a control group of its own."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        super().__init__(ground, folder)
        self._limit = shipped_bytes()
        self.groups: dict[str, Group] = {}

    def start(self, slot: Slot, settings: Mapping[str, str] | None = None) -> Worker:
        worker = super().start(slot, {**SHIPPED, **(settings or {})})
        group = Group(worker.label, self._limit)
        group.take(worker.pid)
        self.groups[worker.label] = group
        return worker

    def group(self, slot: Slot) -> Group:
        assert slot.worker is not None
        return self.groups[slot.worker.label]

    def about(self) -> dict[str, Any]:
        groups = self.groups.values()
        return {
            "limit": self._limit,
            "peak": max((group.peak for group in groups), default=0),
            "oom_kills": sum(group.kills for group in groups),
            "cores": os.cpu_count(),
        }

    def close(self) -> None:
        super().close()
        for group in self.groups.values():
            group.close()
