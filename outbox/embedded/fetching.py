"""Downloads an archive and unpacks it into the cache, completely or not at all. `archive_list.py` lists them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from outbox.embedded.account import open_to_all
from outbox.embedded.archive_list import Archive
from outbox.embedded.errors import ArchiveDamaged, DistributionUnusable
from outbox.embedded.folders import FOR_SERVERS, FolderLock, check_space, explained
from outbox.embedded.maven import find_maven, get_archive, user_home
from outbox.embedded.private import check_place
from outbox.embedded.progress import Report

# MB for Maven's plugins: 780 small files that take 11 MB of disk.
FOR_MAVEN = 20


def fetched(archive: Archive, home: Path, report: Report) -> Path:
    """`home` with the archive's folder."""
    return once(home, report, lambda workplace: _fetch(archive, workplace, home, report))


def once(home: Path, report: Report, fetch: Callable[[Path], None]) -> Path:
    """`home`, which `fetch` creates if it is missing. Under a lock, so that two starts at once fetch it only once."""
    check_place(home)
    if home.exists():
        return home
    workplace = home.parent / "fetch"
    check_space(workplace, FOR_SERVERS, "the embedded servers")
    try:
        with _alone(workplace, report):
            if not home.exists():
                _clear(workplace)
                fetch(workplace)
    except OSError as problem:
        raise explained(problem, home.parent) from problem
    return home


@contextmanager
def _alone(workplace: Path, report: Report) -> Iterator[None]:
    lock = FolderLock(workplace)
    lock.acquire(wait=True, on_wait=lambda: report("waiting for another process that downloads the same"))
    try:
        yield
    finally:
        lock.release()


def _clear(workplace: Path) -> None:
    """Remove what a killed process left behind; we hold the lock."""
    for left in workplace.glob("unpacking-*"):
        shutil.rmtree(left, ignore_errors=True)


def _fetch(archive: Archive, workplace: Path, home: Path, report: Report) -> None:
    if (existing := _inusers_repository(archive, report)) is not None:
        with existing:
            check_space(workplace, archive.unpacked_megabytes + FOR_SERVERS, f"{archive.title}, unpacked")
            _unpack(archive, existing, workplace, home)
        return
    find_maven()
    needed = archive.megabytes + archive.unpacked_megabytes + FOR_MAVEN + FOR_SERVERS
    check_space(workplace, needed, f"{archive.title}: {archive.megabytes} MB of it only during the download")
    repository = workplace / "maven"
    # A partial download is not resumed but removed. Maven's own plugins stay.
    shutil.rmtree(archive.file_in(repository).parent, ignore_errors=True)
    try:
        got = _verified(archive, get_archive(archive, repository, report))
        if got is None:
            raise ArchiveDamaged(archive.coordinates)
        with got:
            _unpack(archive, got, workplace, home)
    finally:
        shutil.rmtree(archive.file_in(repository).parent, ignore_errors=True)
    report(f"{archive.title} is ready")


def users_repository() -> Path:
    return user_home() / ".m2" / "repository"


def _inusers_repository(archive: Archive, report: Report) -> BinaryIO | None:
    """The archive in the caller's own Maven repository, if it is complete. It is used and left there."""
    file = archive.file_in(users_repository())
    if not os.access(file, os.R_OK):  # missing, or not accessible
        return None
    if file.stat().st_uid not in (0, os.geteuid()):  # its owner could change it between the check and the unpacking
        report(f"{file} belongs to another account and is not used")
        return None
    opened = _verified(archive, file)
    if opened is None:
        report(f"{file} is damaged and is not used")
    return opened


def _verified(archive: Archive, file: Path) -> BinaryIO | None:
    """The open file, if its digest is right. It stays open so that what is unpacked is what was checked. 1.2 s for 759
    MB."""
    opened = file.open("rb")
    if hashlib.file_digest(opened, "sha256").hexdigest() == archive.sha256:
        return opened
    opened.close()
    return None


def _unpack(archive: Archive, file: BinaryIO, workplace: Path, home: Path) -> None:
    """Only the needed folder, to a temporary name first: a folder with the final name is always complete."""
    partial = workplace / f"unpacking-{uuid.uuid4().hex}"
    wanted = re.compile(re.escape(f"{archive.folder}/").replace(r"\*", "[^/]+") if archive.folder else "")
    try:
        (_unpack_tar if archive.packaging == "tar.gz" else _unpack_zip)(file, wanted, partial)
        unpacked = next(partial.glob(archive.folder), None) if archive.folder else partial
        if unpacked is None:
            raise DistributionUnusable(f"{archive.coordinates} contains no folder {archive.folder}")
        open_to_all(unpacked)
        unpacked.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _unpack_zip(file: BinaryIO, wanted: re.Pattern[str], target: Path) -> None:
    with zipfile.ZipFile(file) as opened:
        for member in opened.infolist():
            if wanted.match(member.filename):
                _extract(opened, member, target)


def _unpack_tar(file: BinaryIO, wanted: re.Pattern[str], target: Path) -> None:
    file.seek(0)  # it was read for its digest
    with tarfile.open(fileobj=file, mode="r:gz") as opened:
        members = [member for member in opened.getmembers() if wanted.match(member.name)]
        opened.extractall(target, members, filter="data")  # nothing outside of the folder, no device, no foreign owner


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """zipfile restores no permissions and writes links as files. The links are copies of licences and left out."""
    mode = member.external_attr >> 16
    if not stat.S_ISLNK(mode):
        path = Path(opened.extract(member, target))
        if mode & stat.S_IXUSR and not member.is_dir():
            path.chmod(0o755)
