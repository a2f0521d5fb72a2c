"""Owns a server whose data is in memory, on a small disk of its own, which somebody else may fill. Root only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from outbox.embedded.server import EmbeddedServer

# Of the search server, by the share of its disk that is taken.
WATERMARKS: Mapping[str, object] = {
    "cluster.routing.allocation.disk.threshold_enabled": True,
    "cluster.routing.allocation.disk.watermark.low": "85%",
    "cluster.routing.allocation.disk.watermark.high": "90%",
    "cluster.routing.allocation.disk.watermark.flood_stage": "95%",
    "cluster.info.update.interval": "10s",
}


class SmallDisk(EmbeddedServer):
    megabytes: int

    @property
    def disk(self) -> Path:
        return self.folder / "data"

    def mount(self) -> None:
        self._account.share_folder(self.folder)
        self._account.give_folder(self.disk)
        options = f"size={self.megabytes}m,mode=0700,uid={self._account.uid},gid={self._account.gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "nemesis", str(self.disk)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.disk)], check=False, capture_output=True)

    @contextlib.contextmanager
    def full(self, share: float = 1.0) -> Iterator[None]:
        """Somebody else's file takes so much of the whole disk; of all of it, to the last byte."""
        file = self.disk / "ballast"
        try:
            with file.open("wb", buffering=0) as out, contextlib.suppress(OSError):
                system = os.statvfs(self.disk)
                left = int((system.f_bavail - (1 - share) * system.f_blocks) * system.f_frsize)
                for _ in range(left >> 16):
                    out.write(bytes(1 << 16))
                while share >= 1:
                    out.write(bytes(1 << 10))
            yield
        finally:
            file.unlink(missing_ok=True)
