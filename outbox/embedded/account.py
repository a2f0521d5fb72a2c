"""Owns as whom the servers run: as the caller, or as an unprivileged account when the caller is root.

PostgreSQL and Elasticsearch both refuse to run as root. It changes no account of the system.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox.embedded.errors import FolderUnreachable

UNPRIVILEGED = "nobody"


@dataclass(frozen=True)
class Account:
    """The user and group ids that a server runs with."""

    uid: int
    gid: int

    @classmethod
    def for_servers(cls) -> Account:
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        entry = pwd.getpwnam(UNPRIVILEGED)
        return cls(entry.pw_uid, entry.pw_gid)

    @property
    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def run(self, argv: list[str], cwd: Path, env: dict[str, str] | None = None, text: str = "") -> str:
        """Run a short program as this account; what it wrote, or a CalledProcessError."""
        other: dict[str, Any] = {} if self.is_caller else {"user": self.uid, "group": self.gid, "extra_groups": []}
        done = subprocess.run(argv, cwd=cwd, env=env, input=text, text=True, check=True, capture_output=True, **other)
        return str(done.stdout)

    def can_reach(self, path: Path) -> bool:
        """Whether this account may enter every folder above `path` and read it, by the permission bits."""
        if self.is_caller:
            return os.access(path, os.R_OK)
        resolved = path.resolve()
        return self._may(resolved, 0o4) and all(self._may(parent, 0o1) for parent in resolved.parents)

    def _may(self, path: Path, bit: int) -> bool:
        about = path.stat()
        shift = 6 if about.st_uid == self.uid else 3 if about.st_gid == self.gid else 0
        return bool((about.st_mode >> shift) & bit)

    def give_folder(self, path: Path) -> Path:
        """Make `path` a private folder of this account; fail when it could not get there."""
        path.mkdir(parents=True, exist_ok=True)
        if not self.is_caller:
            os.chown(path, self.uid, self.gid)
            if not self.can_reach(path):
                raise FolderUnreachable(str(path))
        path.chmod(0o700)
        return path

    def give_file(self, path: Path, text: str) -> Path:
        """Write a file that only this account can read."""
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        if not self.is_caller:
            os.chown(path, self.uid, self.gid)
        return path


def open_to_all(folder: Path) -> None:
    """Let everyone read what is in `folder`: the umask may have hidden it, and it holds no secret."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():  # what it leads to is in the folder too, or is not ours to open
            continue
        mode = path.stat().st_mode
        runnable = path.is_dir() or mode & stat.S_IXUSR
        path.chmod(stat.S_IMODE(mode) | (0o755 if runnable else 0o644))
