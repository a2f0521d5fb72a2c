"""Owns where the embedded servers keep their files, that a folder has one owner, and its disk space. Starts nothing.

DATA_DIR/elasticsearch-8.14.1/     fetched once, shared, read-only
DATA_DIR/programs/                 copies of programs that the servers' account cannot reach
DATA_DIR/kafka-4.1.0-*/            the same, only for those who use Kafka; and debezium-3.6.2.Final/
DATA_DIR/stacks/kept-1, kept-2     one per running stack; the next start takes the first that is free
DATA_DIR/stacks/temporary-*        removed at the end, or by the next start if its owner was killed
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from outbox.config import service
from outbox.embedded.errors import FolderInUse, FolderNotOurs, FolderNotWritable, NoSpace
from outbox.embedded.private import check_place, own_file

TEMPORARY = "temporary-"
_TRIES = 20
# MB that two servers write at first: 42 MB after some minutes of `outbox up` with its sample, and 40 MB for a copied
# PostgreSQL. The rest is for a WAL that grows under load.
FOR_SERVERS = 250
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def default_data_dir() -> Path:
    """OUTBOX_DATA_DIR, else the default of the settings. For tests and labs, which read no settings."""
    given = os.environ.get("OUTBOX_DATA_DIR")
    return Path(given).expanduser().resolve() if given else service.default_data_dir()


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, closed to others. Root's are open to enter, for its unprivileged servers."""
    check_place(folder)
    if not folder.exists():
        make_folder(folder.parent)
        with suppress(FileExistsError):  # another start was faster; `exist_ok` would raise too if that one removes it
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                folder.chmod(0o755)  # whatever the umask


class FolderLock:
    """The right to use a folder. The system releases it when the owner dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[str] | None = None

    def acquire(self, on_wait: Callable[[], None] | None = None) -> bool:
        """Take the lock. If another owner has it: False, or with `on_wait` that is called and the lock awaited."""
        if self._file is not None:
            return True
        make_folder(self.folder)
        file = os.fdopen(own_file(self.folder / "lock"), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is None:
                file.close()
                return False
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def waited(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """While it is held, after waiting for another owner."""
        self.acquire(on_wait)
        try:
            yield
        finally:
            self.release()

    @property
    def in_place(self) -> bool:
        """The locked file is still the folder's: it was not removed between its creation and its locking."""
        try:
            return self._file is not None and os.path.samestat(
                os.fstat(self._file.fileno()), (self.folder / "lock").stat()
            )
        except FileNotFoundError:
            return False


@contextmanager
def stack_folder(data_dir: Path, name: str = "kept") -> Iterator[Path]:
    """The first unused stack folder of this name: a second stack gets its own, and each finds its data again."""
    for number in count(1):
        lock = FolderLock(data_dir / "stacks" / f"{name}-{number}")
        if lock.acquire():
            break
    try:
        yield lock.folder
    finally:
        lock.release()


@contextmanager
def temporary_folder(data_dir: Path) -> Iterator[Path]:
    """A folder of its own, removed at the end. Not in the system's temporary folder: Elasticsearch 9 refuses that.

    Another start may take a new folder for an abandoned one before it is locked: then the next name is tried.
    """
    names = (data_dir / "stacks" / f"{TEMPORARY}{uuid.uuid4().hex[:12]}" for _ in range(_TRIES))
    lock = next(filter(_taken, map(FolderLock, names)), None)
    if lock is None:
        raise FolderInUse(str(data_dir / "stacks"))
    try:
        yield lock.folder
    finally:
        shutil.rmtree(lock.folder, ignore_errors=True)
        lock.release()


def _taken(lock: FolderLock) -> bool:
    """Locked, and still there: others may remove it until it is locked."""
    with suppress(FileNotFoundError):
        if lock.acquire() and lock.in_place:
            return True
    lock.release()
    return False


def abandoned_folders(data_dir: Path) -> Iterator[Path]:
    """Temporary folders whose owner has died. Each is locked while it is yielded, and removed afterwards."""
    for folder in (data_dir / "stacks").glob(f"{TEMPORARY}*"):
        lock = FolderLock(folder)
        with suppress(FolderNotOurs):  # it belongs to another user, who removes it
            if _taken(lock):
                yield folder
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def check_space(folder: Path, megabytes: int, why: str) -> None:
    """Raise if `folder` is not writable, or its disk has less than `megabytes` free."""
    try:
        place = next(place for place in (folder, *folder.parents) if place.exists())
    except PermissionError:
        place = None
    if place is None or not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        raise FolderNotWritable(f"{folder} ({why})")
    free = shutil.disk_usage(place).free // 1_000_000
    if free < megabytes:
        raise NoSpace(f"{folder} has {free} MB free; {megabytes} MB are needed ({why})")


def explained(problem: OSError, folder: Path) -> Exception:
    """The same error with a remedy, if the disk is the cause."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(f"{folder}: {problem.strerror}")
    return FolderNotWritable(f"{folder}: {problem.strerror}") if problem.errno in _REFUSED else problem
