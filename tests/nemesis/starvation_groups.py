"""Owns control groups of workers, with the memory that deploy/ ships: either version of control groups. Root only."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from labs.worker import ROOT as REPOSITORY

ROOT = Path("/sys/fs/cgroup")
SHIPPED = REPOSITORY / "deploy" / "kubernetes" / "base" / "projector.yaml"
PERIOD_MICROSECONDS = 100_000


def shipped_bytes() -> int:
    """The limit of the projector's container."""
    found = re.search(r"limits: \{memory: (\d+)Mi\}", SHIPPED.read_text(encoding="utf-8"))
    assert found is not None, f"no limit in {SHIPPED}"
    return int(found[1]) << 20


@dataclass(frozen=True, slots=True)
class Names:
    """Where a version keeps things: folder of each controller, and its files."""

    memory: str
    cpu: str
    limit: str
    peak: str
    quota: str
    kills: str


OLD = Names(
    "memory", "cpu", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "cpu.cfs_quota_us", "memory.oom_control"
)
NEW = Names("", "", "memory.max", "memory.peak", "cpu.max", "memory.events")


def names() -> Names:
    return OLD if (ROOT / "memory" / OLD.limit).exists() or (ROOT / "memory").is_dir() else NEW


class Group:
    """One worker's, with a memory limit; made on entering a process and removed by `close`."""

    def __init__(self, name: str, limit: int) -> None:
        self._names = names()
        own = f"nemesis-{os.getpid()}-{name}"
        self._memory, self._cpu = (ROOT / part / own for part in (self._names.memory, self._names.cpu))
        for folder in {self._memory, self._cpu}:
            folder.mkdir()
        (self._memory / self._names.limit).write_text(str(limit))
        self.limit = limit

    def take(self, pid: int) -> None:
        for folder in {self._memory, self._cpu}:
            (folder / "cgroup.procs").write_text(str(pid))

    def allow_cores(self, share: float | None) -> None:
        """None: as many as there are."""
        old = self._names is OLD
        none = "-1" if old else f"max {PERIOD_MICROSECONDS}"
        some = str(int((share or 0) * PERIOD_MICROSECONDS)) + ("" if old else f" {PERIOD_MICROSECONDS}")
        (self._cpu / self._names.quota).write_text(none if share is None else some)

    @property
    def throttled(self) -> int:
        """In how many periods it had to wait."""
        return self._stat(self._cpu / "cpu.stat", "nr_throttled")

    @property
    def peak(self) -> int:
        return int((self._memory / self._names.peak).read_text())

    @property
    def kills(self) -> int:
        return self._stat(self._memory / self._names.kills, "oom_kill")

    @staticmethod
    def _stat(path: Path, name: str) -> int:
        rows = dict(line.split() for line in path.read_text().splitlines())
        return int(rows.get(name, 0))

    def close(self) -> None:
        """Its processes have ended."""
        for folder in {self._memory, self._cpu}:
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.1)
