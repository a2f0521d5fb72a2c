"""Downloads a list of jars into one folder of the cache, completely or not at all. `jar_list.py` lists them."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from pathlib import Path

from outbox.embedded.account import open_to_all
from outbox.embedded.errors import ArchiveDamaged
from outbox.embedded.fetching import FOR_MAVEN, once, users_repository
from outbox.embedded.folders import FOR_SERVERS, check_space
from outbox.embedded.jar_list import Jar, JarList
from outbox.embedded.maven import find_maven, get_jars
from outbox.embedded.progress import Report


def fetched_jars(jars: JarList, home: Path, report: Report) -> Path:
    """`home` with these jars and no others."""
    return once(home, report, lambda workplace: _fetch(jars, workplace, home, report))


def _fetch(jars: JarList, workplace: Path, home: Path, report: Report) -> None:
    partial = workplace / f"unpacking-{uuid.uuid4().hex}"
    partial.mkdir(mode=0o700)
    try:
        missing = _copied(jars.jars, users_repository(), partial)
        if missing:
            _download(jars, missing, workplace / "maven", partial, report)
        open_to_all(partial)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report(f"{jars.title} is ready")


def _download(jars: JarList, missing: tuple[Jar, ...], repository: Path, target: Path, report: Report) -> None:
    find_maven()
    needed = 2 * jars.megabytes + FOR_MAVEN + FOR_SERVERS
    check_space(repository, needed, f"{jars.title}: {jars.megabytes} MB of it only during the download")
    wanted = JarList(jars.title, jars.name, missing)
    try:
        get_jars(wanted, repository, report)
        if damaged := _copied(missing, repository, target):
            raise ArchiveDamaged(", ".join(jar.coordinates for jar in damaged))
    finally:
        for jar in missing:  # Maven's own plugins stay
            shutil.rmtree(jar.file_in(repository).parent, ignore_errors=True)


def _copied(jars: tuple[Jar, ...], repository: Path, target: Path) -> tuple[Jar, ...]:
    """Copy those that a repository has; the others are returned. The copy is checked: nobody else can change it."""
    return tuple(jar for jar in jars if not _has_copied(jar, jar.file_in(repository), target / jar.name))


def _has_copied(jar: Jar, source: Path, target: Path) -> bool:
    if not os.access(source, os.R_OK):
        return False
    shutil.copyfile(source, target)
    with target.open("rb") as copy:
        if hashlib.file_digest(copy, "sha256").hexdigest() == jar.sha256:
            return True
    target.unlink()
    return False
