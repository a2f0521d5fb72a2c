"""Owns where the embedded servers keep their files and that one folder serves one owner; it starts nothing.

DATA_DIR/elasticsearch-8.14.1/     fetched once, shared, read-only
DATA_DIR/programs/                 copies of programs that lie where the servers' account may not enter
DATA_DIR/stacks/1, 2, ...          one a running stack; the next start takes the first that is free
DATA_DIR/stacks/temporary-*        removed when left, or by the next start when its owner was killed
"""

from __future__ import annotations

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
from outbox.embedded.errors import FolderInUse, FolderNotOurs
from outbox.embedded.private import check_place, own_file

TEMPORARY = "temporary-"
_TRIES = 20


def default_data_dir() -> Path:
    """OUTBOX_DATA_DIR, else the default of the settings: for tests and labs, which read no settings."""
    given = os.environ.get("OUTBOX_DATA_DIR")
    return Path(given).expanduser().resolve() if given else service.default_data_dir()


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, closed to others; root's so that its unprivileged servers can pass through."""
    check_place(folder)
    if not folder.exists():
        make_folder(folder.parent)
        with suppress(FileExistsError):  # another start was faster; `exist_ok` raises it too, if that one removes it
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                folder.chmod(0o755)  # whatever the umask


class FolderLock:
    """The right to use a folder; the system takes it back when the owner dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[str] | None = None

    def acquire(self, *, wait: bool = False, on_wait: Callable[[], None] | None = None) -> bool:
        """Take the lock; False when another owner has it and `wait` is not set."""
        if self._file is not None:
            return True
        make_folder(self.folder)
        file = os.fdopen(own_file(self.folder / "lock"), "r+")
        if not _try_lock(file):
            if not wait:
                file.close()
                return False
            if on_wait:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def in_place(self) -> bool:
        """The locked file is the folder's own: nobody removed it between its making and its locking."""
        try:
            return self._file is not None and os.path.samestat(
                os.fstat(self._file.fileno()), (self.folder / "lock").stat()
            )
        except FileNotFoundError:
            return False

    @property
    def held(self) -> bool:
        return self._file is not None


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def stack_folder(data_dir: Path) -> Iterator[Path]:
    """The first stack folder that nobody uses: a second stack gets its own, and each finds its data again."""
    for number in count(1):
        lock = FolderLock(data_dir / "stacks" / str(number))
        if lock.acquire():
            break
    try:
        yield lock.folder
    finally:
        lock.release()


@contextmanager
def temporary_folder(data_dir: Path) -> Iterator[Path]:
    """A folder of its own, removed when left; not where the system's are, since Elasticsearch 9 refuses that."""
    lock = _new_folder(data_dir)
    try:
        yield lock.folder
    finally:
        shutil.rmtree(lock.folder, ignore_errors=True)
        lock.release()


def _new_folder(data_dir: Path) -> FolderLock:
    """Another's start may take a new folder for an abandoned one before it is locked: then the next name."""
    for _ in range(_TRIES):
        lock = FolderLock(data_dir / "stacks" / f"{TEMPORARY}{uuid.uuid4().hex[:12]}")
        if _taken(lock):
            return lock
    raise FolderInUse(str(lock.folder))


def _taken(lock: FolderLock) -> bool:
    """Locked, and still there; others may remove it up to the moment when it is locked."""
    with suppress(FileNotFoundError):
        if lock.acquire() and lock.in_place:
            return True
    lock.release()
    return False


def abandoned_folders(data_dir: Path) -> Iterator[Path]:
    """Temporary folders whose owner is gone; each is locked while it is yielded, and removed afterwards."""
    for folder in (data_dir / "stacks").glob(f"{TEMPORARY}*"):
        lock = FolderLock(folder)
        with suppress(FolderNotOurs):  # another's, who removes it
            if _taken(lock):
                yield folder
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()
