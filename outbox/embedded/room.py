"""Owns whether a folder can take what is to be written there, asked before minutes are spent; it writes nothing."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from outbox.embedded.errors import FolderNotWritable, NoRoom

# What two servers write at first: 42 MB after some minutes of `outbox up` with its sample, and 40 MB for a copied
# PostgreSQL. The rest is for a WAL that grows under load.
FOR_SERVERS = 250
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def check_room(folder: Path, megabytes: int, why: str) -> None:
    """Raise when `folder` cannot be written, or its disk has less free than `megabytes`."""
    place = _nearest(folder)
    if place is None or not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        raise FolderNotWritable(f"{folder} ({why})")
    free = shutil.disk_usage(place).free // 1_000_000
    if free < megabytes:
        raise NoRoom(f"{folder} has {free} MB free; {megabytes} MB are needed ({why})")


def _nearest(folder: Path) -> Path | None:
    """The folder itself or the first above it that is there; None where one of them is closed to us."""
    try:
        return next(place for place in (folder, *folder.parents) if place.exists())
    except PermissionError:
        return None


def explained(problem: OSError, folder: Path) -> Exception:
    """The same with its remedy where the disk is the cause."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoom(f"{folder}: {problem.strerror}")
    return FolderNotWritable(f"{folder}: {problem.strerror}") if problem.errno in _REFUSED else problem
