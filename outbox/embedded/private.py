"""Opens files of the embedded servers safely: follows no link, opens no other user's file.

Root starts servers that run as another account. What root writes must be where no other account can put a link. It
knows no server.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from outbox.embedded.errors import FolderNotOurs


def new_file(path: Path) -> int:
    """An empty file that only the caller can read, open for appending. A link of that name is removed, not its
    target."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def own_file(path: Path) -> int:
    """A file of the caller, created if missing, open for reading and writing."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EACCES, errno.EISDIR):
            raise FolderNotOurs(str(path)) from problem
        raise
    return _checked(file, path, os.geteuid())


def read_text(path: Path, *owners: int) -> str:
    """The text of a small file, not a link, that belongs to one of these owners."""
    try:  # non-blocking: it might be a pipe
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise FolderNotOurs(str(path)) from problem
        raise
    with os.fdopen(_checked(file, path, *owners), encoding="utf-8") as opened:
        return opened.read(4096)


def _checked(file: int, path: Path, *owners: int) -> int:
    about = os.fstat(file)
    if about.st_uid not in owners or not stat.S_ISREG(about.st_mode):
        os.close(file)
        raise FolderNotOurs(str(path))
    return file


def opened_folder(path: Path, *owners: int) -> int:
    """Open a folder, not a link, that belongs to one of these owners."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOTDIR):
            raise FolderNotOurs(str(path)) from problem
        raise
    if os.fstat(folder).st_uid not in owners:
        os.close(folder)
        raise FolderNotOurs(str(path))
    return folder


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
