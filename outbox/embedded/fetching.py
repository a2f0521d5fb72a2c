"""Downloads what `pins.py` lists, with Maven, into the cache: checked by its digest, completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from outbox.embedded.errors import (
    ArchiveDamaged,
    DistributionUnusable,
    FetchFailed,
    MavenHasNoJava,
    MavenMissing,
    NoSpace,
)
from outbox.embedded.folders import FOR_SERVERS, FolderLock, check_space, explained, make_folder
from outbox.embedded.java import wheel_java
from outbox.embedded.maven_proxy import maven_settings
from outbox.embedded.pins import Artifact, Download
from outbox.embedded.safe_files import check_place, new_file
from outbox.embedded.server_account import open_to_all
from outbox.embedded.supervisor import follow_parent

# MB for Maven's plugins: 780 small files that take 11 MB of disk.
FOR_MAVEN = 20
# Debian's certificates for Java; the wheel's Java does not use them by itself.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
POLL_SECONDS = 1.0
STEPS = 10
DISK_FULL = os.strerror(errno.ENOSPC)
Report = Callable[[str], None]


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201


def fetched(wanted: Download, cache: Path, report: Report) -> Path:
    """Its folder in the cache; fetched if it is missing, under a lock, so that two starts at once fetch it once."""
    home, workplace = cache / wanted.name, cache / "fetch"
    check_place(home)
    if home.exists():
        return home
    check_space(workplace, wanted.unpacked_megabytes + FOR_SERVERS, f"{wanted.title}, unpacked")
    try:
        with FolderLock(workplace).waited(lambda: report("waiting for another process that downloads the same")):
            if not home.exists():
                _fetch(wanted, workplace, home, report)
    except OSError as problem:
        raise explained(problem, cache) from problem
    return home


def _fetch(wanted: Download, workplace: Path, home: Path, report: Report) -> None:
    """To a temporary name first: a folder with the final name is always complete."""
    for left in workplace.glob("unpacking-*"):  # by a process that was killed: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    partial = workplace / f"unpacking-{uuid.uuid4().hex}"
    partial.mkdir(mode=0o700)
    try:
        _fill(partial, wanted, workplace / "maven", report)
        unpacked = next(partial.glob(wanted.folder), None) if wanted.folder else partial
        if unpacked is None:
            raise DistributionUnusable(f"{wanted.artifacts[0].coordinates} contains no folder {wanted.folder}")
        open_to_all(unpacked)
        unpacked.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report(f"{wanted.title} is ready")


def _fill(target: Path, wanted: Download, repository: Path, report: Report) -> None:
    """What the caller's own Maven repository has complete is used and left there; the rest is downloaded."""
    missing = _not_placed(wanted, user_home() / ".m2" / "repository", target, report)
    if not missing.artifacts:
        return
    program = _find_maven()
    needed = wanted.megabytes + wanted.unpacked_megabytes + FOR_MAVEN + FOR_SERVERS
    check_space(repository, needed, f"{wanted.title}: {wanted.megabytes} MB of it only during the download")
    _remove(missing, repository)  # a partial download is not resumed
    try:
        _download(program, missing, repository, report)
        if damaged := _not_placed(missing, repository, target, report).artifacts:
            raise ArchiveDamaged(", ".join(one.coordinates for one in damaged))
    finally:
        _remove(missing, repository)


def _remove(unwanted: Download, repository: Path) -> None:
    """Maven's own plugins stay."""
    for one in unwanted.artifacts:
        shutil.rmtree(one.file_in(repository).parent, ignore_errors=True)


# From a repository into the folder


def _not_placed(wanted: Download, repository: Path, target: Path, report: Report) -> Download:
    """Place what the repository has as it is pinned; the rest is returned."""
    inner = re.compile(re.escape(f"{wanted.folder}/").replace(r"\*", "[^/]+") if wanted.folder else "")
    rest = tuple(one for one in wanted.artifacts if not _is_placed(one, repository, inner, target, report))
    return replace(wanted, artifacts=rest)


def _is_placed(one: Artifact, repository: Path, inner: re.Pattern[str], target: Path, report: Report) -> bool:
    """The file stays open, so that what is placed is what was checked. 1.2 s for 759 MB."""
    file = one.file_in(repository)
    if not os.access(file, os.R_OK):  # missing, or not accessible
        return False
    with file.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != one.sha256:
            report(f"{file} is damaged and is not used")
            return False
        opened.seek(0)
        match one.packaging:
            case "zip":
                _unpack_zip(opened, inner, target)
            case "tar.gz":
                _unpack_tar(opened, inner, target)
            case _:
                with (target / one.name).open("wb") as copy:
                    shutil.copyfileobj(opened, copy)
    return True


def _unpack_zip(file: BinaryIO, inner: re.Pattern[str], target: Path) -> None:
    """zipfile restores no permissions and writes links as files. The links are copies of licences and left out."""
    with zipfile.ZipFile(file) as opened:
        for member in opened.infolist():
            mode = member.external_attr >> 16
            if inner.match(member.filename) and not stat.S_ISLNK(mode):
                path = Path(opened.extract(member, target))
                if mode & stat.S_IXUSR and not member.is_dir():
                    path.chmod(0o755)


def _unpack_tar(file: BinaryIO, inner: re.Pattern[str], target: Path) -> None:
    with tarfile.open(fileobj=file, mode="r:gz") as opened:
        members = [member for member in opened.getmembers() if inner.match(member.name)]
        opened.extractall(target, members, filter="data")  # nothing outside of the folder, no device, no foreign owner


# Maven


def user_home() -> Path:
    """As Java finds it: from the account, not from HOME. In containers the account may have no entry."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME", "/"))


def _find_maven() -> str:
    program = shutil.which("mvn")
    if program is None:
        raise MavenMissing()
    if not _has_java() and wheel_java() is None:
        raise MavenHasNoJava()
    return program


def _has_java() -> bool:
    return bool(os.environ.get("JAVA_HOME")) or shutil.which("java") is not None


def _download(program: str, wanted: Download, repository: Path, report: Report) -> None:
    """These files and nothing that they depend on, in one run of Maven: each run takes seconds. Into a repository of
    our own: its size shows the progress, and removing it affects nothing else."""
    make_folder(repository)
    project, settings, log = (repository / name for name in ("pom.xml", "settings.xml", "maven.log"))
    if (first := wanted.artifacts[0]).packaging == "jar":
        with os.fdopen(new_file(project), "w", encoding="utf-8") as writing:
            writing.write(wanted.as_project())
        goal = ["-f", str(project), "dependency:resolve"]
    else:  # not as a project, which would need the archive's parents: those of Debezium are not all published
        goal = ["dependency:get", f"-Dartifact={first.coordinates}", "-Dtransitive=false"]
    # -C: Maven checks the download against the repository's checksums; a partial download is never renamed.
    argv = [program, "-B", "-q", "-C", *goal, f"-Dmaven.repo.local={repository}"]
    argv += maven_settings(user_home() / ".m2" / "settings.xml", settings)
    try:
        code = _run(argv, wanted, repository, log, report)
    finally:
        settings.unlink(missing_ok=True)
    if code or not all(one.file_in(repository).exists() for one in wanted.artifacts):
        errors = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
        why = "\n".join(errors[:3]) or "Maven gave no reason"
        raise NoSpace(f"{repository}: the disk is full") if DISK_FULL in why else FetchFailed(why)


def _run(argv: list[str], wanted: Download, repository: Path, log: Path, report: Report) -> int:
    with os.fdopen(new_file(log), "w") as output:
        process = subprocess.Popen(
            argv,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is handled by us
            # If we are killed, it must not go on writing where the next start downloads.
            preexec_fn=follow_parent(signal.SIGKILL),  # noqa: PLW1509
        )
        try:
            _show_progress(process, wanted, repository, report)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


def _environment() -> dict[str, str]:
    """Maven needs a Java; any is enough, and the wheel's is used if there is no other."""
    env = dict(os.environ)
    if not _has_java():
        env["JAVA_HOME"] = str(wheel_java())
        if SYSTEM_TRUST.exists():
            env["MAVEN_OPTS"] = f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST} {env.get('MAVEN_OPTS', '')}".strip()
    return env


def _show_progress(process: subprocess.Popen[bytes], wanted: Download, repository: Path, report: Report) -> None:
    """A line per tenth. Maven's own plugins are counted too, so it may end a little early."""
    report(f"downloading {wanted.title} with Maven (only once, about {wanted.megabytes} MB)")
    before, told = _megabytes(repository), 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return
        done = _megabytes(repository) - before
        if told < (step := done * STEPS // wanted.megabytes) < STEPS:
            report(f"downloading {wanted.title}: {done} of {wanted.megabytes} MB")
            told = step


def _megabytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Maven renames what it has finished
            total += path.stat().st_size
    return total // 1_000_000
