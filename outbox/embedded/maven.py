"""Owns one run of Maven that gets one archive; it checks no digest and unpacks nothing."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from outbox.embedded.archives import Archive
from outbox.embedded.errors import FetchFailed, MavenHasNoJava, MavenMissing, NoRoom
from outbox.embedded.folders import make_folder
from outbox.embedded.java import wheel_java
from outbox.embedded.private import new_file
from outbox.embedded.progress import Meter, Report
from outbox.embedded.proxy import maven_settings
from outbox.embedded.supervisor import follow_parent

# Where Debian keeps the certificates of this machine, for every Java that is not the wheel's.
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")
LOOK_SECONDS = 1.0
DISK_FULL = os.strerror(errno.ENOSPC)


def user_home() -> Path:
    """As Java finds it: by the account, not by HOME; containers run accounts that have no entry."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME", "/"))


def find_maven() -> str:
    """Raise before anything is begun when there is no Maven, or no Java that could run it."""
    program = shutil.which("mvn")
    if program is None:
        raise MavenMissing()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None and wheel_java() is None:
        raise MavenHasNoJava()
    return program


def get_archive(archive: Archive, repository: Path, report: Report) -> Path:
    """The zip in a repository of our own: its growth is the progress shown, and removing it touches nothing else."""
    program = find_maven()
    make_folder(repository)
    # -C: Maven compares what it got with the repository's checksums; a download that was cut is never renamed.
    argv = [program, "-B", "-q", "-C", "dependency:get", f"-Dartifact={archive.coordinates}", "-Dtransitive=false"]
    settings = repository / "settings.xml"
    argv += [f"-Dmaven.repo.local={repository}", *maven_settings(user_home() / ".m2" / "settings.xml", settings)]
    try:
        _run(argv, archive, repository, report)
    finally:
        settings.unlink(missing_ok=True)
    return archive.zip_in(repository)


def _run(argv: list[str], archive: Archive, repository: Path, report: Report) -> None:
    log = repository / "maven.log"
    with os.fdopen(new_file(log), "w") as output:
        process = subprocess.Popen(
            argv,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for us: we end it
            # Were we killed, it would go on writing where the next start fetches.
            preexec_fn=follow_parent(signal.SIGKILL),  # noqa: PLW1509
        )
        try:
            _show_progress(process, archive, repository, report)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode or not archive.zip_in(repository).exists():
        why = _why(log)
        raise NoRoom(f"{repository}: Maven found the disk full") if DISK_FULL in why else FetchFailed(why)


def _environment() -> dict[str, str]:
    """Maven needs a Java of its own; any will do, and the wheel's is there where no other is."""
    env = dict(os.environ)
    if not env.get("JAVA_HOME") and shutil.which("java") is None and (home := wheel_java()):
        env["JAVA_HOME"] = str(home)
        if SYSTEM_TRUST.exists():
            env["MAVEN_OPTS"] = f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST} {env.get('MAVEN_OPTS', '')}".strip()
    return env


def _show_progress(process: subprocess.Popen[bytes], archive: Archive, repository: Path, report: Report) -> None:
    report(f"fetching {archive.title} with Maven, about {archive.megabytes} MB, once")
    meter = Meter(f"fetching {archive.title}", archive.megabytes, report)
    before = _megabytes(repository)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
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
