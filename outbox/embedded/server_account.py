"""Owns the account that the servers run as: the caller, or an unprivileged account if the caller is root.

PostgreSQL and Elasticsearch both refuse to run as root. No account is created: the servers use the account
`outbox-embedded` if an administrator has created it, else `nobody`, which other programs may use too.

What root writes for a server is in a folder of root that the account may read. In the account's own folders root only
creates new files under new names, so that it never follows a link in them.
"""

from __future__ import annotations

import os
import pwd
import secrets
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outbox.embedded.errors import FolderUnreachable
from outbox.embedded.safe_files import opened_folder

ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")

OWN_NAME = "outbox-embedded"
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
        try:
            entry = pwd.getpwnam(OWN_NAME)
        except KeyError:
            entry = pwd.getpwnam(UNPRIVILEGED)
        return cls(entry.pw_uid, entry.pw_gid)

    @property
    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def run(self, argv: list[str], cwd: Path, env: dict[str, str] | None = None, text: str = "") -> str:
        """Run a short program as this account and return its output; of the caller's environment it gets no more than
        a server does. Raises CalledProcessError."""
        env = caller_environment() | (env or {})
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

    def share_folder(self, path: Path) -> Path:
        """Make `path` a folder of the caller that this account may read. Raises if the account cannot reach it."""
        return self._folder(path, os.geteuid(), 0o700 if self.is_caller else 0o750)

    def give_folder(self, path: Path) -> Path:
        """Make `path`, in a folder of the caller, a private folder of this account."""
        return self._folder(path, self.uid, 0o700)

    def _folder(self, path: Path, owner: int, mode: int) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        folder = opened_folder(path, os.geteuid(), self.uid)
        try:
            if not self.is_caller:
                os.fchown(folder, owner, self.gid)
            os.fchmod(folder, mode)
        finally:
            os.close(folder)
        if not self.can_reach(path):
            raise FolderUnreachable(str(path))
        return path

    def give_file(self, path: Path, text: str) -> Path:
        """Write a file that the caller owns and only this account can read: a new file that is then renamed."""
        folder = opened_folder(path.parent, os.geteuid(), self.uid)
        new = f"{path.name}.{secrets.token_hex(8)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
                if not self.is_caller:
                    os.fchown(file.fileno(), os.geteuid(), self.gid)
                    os.fchmod(file.fileno(), 0o640)
                file.write(text)
            os.rename(new, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
        return path


def caller_environment() -> dict[str, str]:
    """What servers and their tools need from the caller's environment, without its secrets."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def open_to_all(folder: Path) -> None:
    """Let everyone read `folder` and its contents: the umask may have closed it, and it holds no secret."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():  # its target is in the folder too, or does not belong to us
            continue
        mode = path.stat().st_mode
        runnable = path.is_dir() or mode & stat.S_IXUSR
        path.chmod(stat.S_IMODE(mode) | (0o755 if runnable else 0o644))
