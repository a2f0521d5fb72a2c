"""Copies programs of a wheel to a place where the servers' account can run them. It installs none and starts no server.

A checkout in root's home is closed to every other account, including the servers in its virtual environment.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from outbox.embedded.errors import FolderUnreachable, ProgramsUnusable
from outbox.embedded.folders import FolderLock
from outbox.embedded.server_account import Account, open_to_all


@dataclass(frozen=True)
class Programs:
    """Programs under `root`, with all that they load: libraries are found by a path relative to the program."""

    root: Path
    parts: tuple[str, ...]
    runs: tuple[str, ...]


def reachable_programs(programs: Programs, account: Account, target: Path) -> Path:
    """Their root if the account can run them, else the root of a copy at `target`, made under a lock."""
    if account.is_caller or not _why_unusable(programs, account):
        return programs.root
    with FolderLock(target.parent).waited():
        # Each start tests an existing copy, which may be damaged; running both programs takes 40 ms.
        if _why_unusable(replace(programs, root=target), account):
            _copy(programs, account, target)
    return target


def _copy(programs: Programs, account: Account, target: Path) -> None:
    """To a temporary name, tested there, then renamed: a folder with the final name is complete and works."""
    for left in target.parent.glob("*.part"):  # left by a copy that was killed: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        for part in programs.parts:
            shutil.copytree(programs.root / part, partial / part, symlinks=True)
        open_to_all(partial)
        if why := _why_unusable(replace(programs, root=partial), account):
            raise FolderUnreachable(str(target)) if not account.can_reach(partial) else ProgramsUnusable(why)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _why_unusable(programs: Programs, account: Account) -> str:
    """Empty if the account can read every part and run every program."""
    for part in programs.parts:
        path = programs.root / part
        if not path.exists() or not account.can_reach(path):
            return f"{path} is missing, or not readable by the servers' account"
    for name in programs.runs:
        try:
            account.run([str(programs.root / name), "--version"], Path("/"))
        except subprocess.CalledProcessError as failed:
            return f"{programs.root / name}: {failed.stderr.strip()}"
        except OSError as refused:
            return f"{programs.root / name}: {refused.strerror}"
    return ""
