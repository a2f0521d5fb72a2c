"""Opens files of the embedded servers safely: follows no link, opens no other user's file.

Root starts servers that run as another account. What root writes must be where no other account can put a link. It
knows no server.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from outbox.embedded.errors import FolderNotOurs

# A link, a folder for a file or a file for a folder, or closed to us.
_OTHERS = (errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.EACCES)


def new_file(path: Path) -> int:
    """An empty file that only the caller can read, open for appending. A link of that name is removed, not its
    target."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def own_file(path: Path) -> int:
    """A file of the caller, created if missing, open for reading and writing."""
    return _opened(path, os.O_RDWR | os.O_CREAT, stat.S_ISREG, os.geteuid())


def read_text(path: Path, *owners: int) -> str:
    """The text of a small file, not a link, that belongs to one of these owners."""
    # Non-blocking: it might be a pipe.
    with os.fdopen(_opened(path, os.O_RDONLY | os.O_NONBLOCK, stat.S_ISREG, *owners), encoding="utf-8") as opened:
        return opened.read(4096)


def opened_folder(path: Path, *owners: int) -> int:
    """Open a folder, not a link, that belongs to one of these owners."""
    return _opened(path, os.O_RDONLY | os.O_DIRECTORY, stat.S_ISDIR, *owners)


def _opened(path: Path, flags: int, is_kind: Callable[[int], bool], *owners: int) -> int:
    try:
        opened = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno in _OTHERS:
            raise FolderNotOurs(str(path)) from problem
        raise
    about = os.fstat(opened)
    if about.st_uid not in owners or not is_kind(about.st_mode):
        os.close(opened)
        raise FolderNotOurs(str(path))
    return opened


def check_place(folder: Path) -> None:
    """Raise if another user could have created this folder or one of its parents, as anyone can in /tmp."""
    for place in (folder, *folder.parents):
        if _is_open_to_all(place.parent) and not _is_ours(place):
            raise FolderNotOurs(str(place))


def _is_open_to_all(folder: Path) -> bool:
    """Whether everyone may create files in it. Raises without the sticky bit: then everyone may replace any file."""
    try:
        mode = folder.stat().st_mode
    except OSError:  # missing, or not accessible
        return False
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise FolderNotOurs(str(folder))
    return bool(mode & stat.S_IWOTH)


def _is_ours(place: Path) -> bool:
    try:
        return place.lstat().st_uid in (0, os.geteuid())
    except OSError:
        return True  # missing: we create it
