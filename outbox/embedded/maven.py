"""Runs Maven to download an archive or a list of jars. It checks no digest and unpacks nothing."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.archive_list import Archive
from outbox.embedded.errors import FetchFailed, MavenHasNoJava, MavenMissing, NoSpace
from outbox.embedded.folders import make_folder
from outbox.embedded.jar_list import JarList
from outbox.embedded.java import wheel_java
from outbox.embedded.maven_proxy import maven_settings
from outbox.embedded.private import new_file
from outbox.embedded.progress import DownloadMeter, Report
from outbox.embedded.supervisor import follow_parent

# Debian's certificates for Java; the wheel's Java does not use them by itself.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
POLL_SECONDS = 1.0
DISK_FULL = os.strerror(errno.ENOSPC)


def user_home() -> Path:
    """As Java finds it: from the account, not from HOME. In containers the account may have no entry."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME", "/"))


def find_maven() -> str:
    """The path of Maven. Raises if there is no Maven, or no Java to run it."""
    program = shutil.which("mvn")
    if program is None:
        raise MavenMissing()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None and wheel_java() is None:
        raise MavenHasNoJava()
    return program


@dataclass(frozen=True)
class Download:
    """What Maven is asked for, and the files that it must leave in the repository."""

    goal: list[str]
    title: str
    megabytes: int
    files: tuple[Path, ...]


def get_archive(archive: Archive, repository: Path, report: Report) -> Path:
    """The archive in a repository of our own: its size shows the progress, and removing it affects nothing else."""
    goal = ["dependency:get", f"-Dartifact={archive.coordinates}", "-Dtransitive=false"]
    file = archive.file_in(repository)
    _get(Download(goal, archive.title, archive.megabytes, (file,)), repository, report)
    return file


def get_jars(jars: JarList, repository: Path, report: Report) -> None:
    """All jars of the list and nothing that they depend on, in one run of Maven: each run takes seconds."""
    make_folder(repository)
    project = repository / "pom.xml"
    with os.fdopen(new_file(project), "w", encoding="utf-8") as writing:
        writing.write(jars.as_project())
    goal = ["-f", str(project), "dependency:resolve"]
    files = tuple(jar.file_in(repository) for jar in jars.jars)
    _get(Download(goal, jars.title, jars.megabytes, files), repository, report)


def _get(wanted: Download, repository: Path, report: Report) -> None:
    program = find_maven()
    make_folder(repository)
    settings = repository / "settings.xml"
    # -C: Maven checks the download against the repository's checksums; a partial download is never renamed.
    argv = [program, "-B", "-q", "-C", *wanted.goal, f"-Dmaven.repo.local={repository}"]
    argv += maven_settings(user_home() / ".m2" / "settings.xml", settings)
    try:
        _run(argv, wanted, repository, report)
    finally:
        settings.unlink(missing_ok=True)


def _run(argv: list[str], wanted: Download, repository: Path, report: Report) -> None:
    log = repository / "maven.log"
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
    if process.returncode or not all(file.exists() for file in wanted.files):
        why = _why(log)
        raise NoSpace(f"{repository}: the disk is full") if DISK_FULL in why else FetchFailed(why)


def _environment() -> dict[str, str]:
    """Maven needs a Java; any is enough, and the wheel's is used if there is no other."""
    env = dict(os.environ)
    if not env.get("JAVA_HOME") and shutil.which("java") is None and (home := wheel_java()):
        env["JAVA_HOME"] = str(home)
        if SYSTEM_TRUST.exists():
            env["MAVEN_OPTS"] = f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST} {env.get('MAVEN_OPTS', '')}".strip()
    return env


def _show_progress(process: subprocess.Popen[bytes], wanted: Download, repository: Path, report: Report) -> None:
    report(f"downloading {wanted.title} with Maven (only once, about {wanted.megabytes} MB)")
    meter = DownloadMeter(f"downloading {wanted.title}", wanted.megabytes, report)
    before = _megabytes(repository)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)
                return
            meter.show(_megabytes(repository) - before)
    finally:
        meter.close()


def _megabytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Maven renames what it has finished
            total += path.stat().st_size
    return total // 1_000_000


def _why(log: Path) -> str:
    errors = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
    return "\n".join(errors[:3]) or "Maven gave no reason"
