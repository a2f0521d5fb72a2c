"""Getting Elasticsearch: fetched once, whole or not at all, and a remedy for whatever is missing."""

import hashlib
import shutil
import stat
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outbox.embedded import fetching, java
from outbox.embedded.errors import ArchiveDamaged, JavaMissing, MavenMissing
from outbox.embedded.products import RELEASES, release_of
from outbox.embedded.server_account import Account
from outbox.embedded.supplies import fetched_distribution, find_supplies

# Stands in for Maven: puts a small zip where Maven would put the large one, and counts its runs.
MAVEN = f"""#!{sys.executable}
import pathlib, shutil, sys
repository = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("-Dmaven.repo.local="))
target = pathlib.Path(repository, "ZIP")
target.parent.mkdir(parents=True)
shutil.copy("SOURCE", target)
with open("COUNT", "a") as file:
    file.write("fetched\\n")
"""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Maven and Java; what is put into this folder is on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "SYSTEM_JAVAS", tmp_path / "no-system-javas")
    monkeypatch.setattr(fetching, "user_home", lambda: tmp_path / "home")
    for name in ("8", "opensearch-2"):
        monkeypatch.setitem(RELEASES, name, RELEASES[name])  # `install_maven` changes its digest
    return folder


def runnable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXOTH)
    return path


def know(archive: Path, name: str = "8") -> None:
    """Make this file the archive of this release."""
    digest, release = hashlib.sha256(archive.read_bytes()).hexdigest(), RELEASES[name]
    pinned = replace(release.archive.artifacts[0], sha256=digest)
    RELEASES[name] = replace(release, archive=replace(release.archive, artifacts=(pinned,)))


def install_maven(programs: Path, members: list[str], name: str = "8") -> Path:
    """A Maven whose artifact holds these files; returns the file that counts its runs."""
    archive, count = programs.parent / "artifact.zip", programs.parent / "count"
    with zipfile.ZipFile(archive, "w") as file:
        for member in members:
            file.writestr(member, "x")
    know(archive, name)
    place = release_of(name).archive.artifacts[0].file_in(Path())
    text = MAVEN.replace("ZIP", str(place)).replace("SOURCE", str(archive)).replace("COUNT", str(count))
    runnable(programs / "mvn", text)
    return count


SERVER = ["sonarqube-1/elasticsearch/lib/elasticsearch-8.14.1.jar", "sonarqube-1/web/large.js"]


def test_what_is_missing_is_said_before_anything_is_fetched_or_started(programs: Path, tmp_path: Path) -> None:
    """No Maven, no Java but the wheel's: for 8 Maven would bring both; for 9 there is no Java that we could fetch."""
    said: list[str] = []
    with pytest.raises(MavenMissing, match=r"(?s)apt-get install\s+maven.*docker compose -f .*OUTBOX_ES_HOME"):
        find_supplies(tmp_path / "cache", "8", None, Account.for_servers(), said.append)
    with pytest.raises(JavaMissing, match=r"21 or later.*java-runtime is Java 21 without the module jdk\.jdi"):
        find_supplies(tmp_path / "cache", "9", None, Account.for_servers(), said.append)
    assert said == ["no suitable Java on this machine: fetching one"]
    assert not list((tmp_path / "cache").glob("fetch/maven"))


def damage(archive: Path) -> None:
    """Cut at half, as a download that was broken off."""
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])


def test_a_cut_archive_is_never_used_and_the_next_start_begins_anew(programs: Path, tmp_path: Path) -> None:
    install_maven(programs, SERVER)
    artifact = tmp_path / "artifact.zip"
    whole = artifact.read_bytes()
    damage(artifact)
    with pytest.raises(ArchiveDamaged, match="SHA-256"):
        fetched_distribution(tmp_path, "8", lambda _: None)
    assert not (tmp_path / "elasticsearch-8.14.1").exists()
    assert not list((tmp_path / "fetch").rglob("*.zip"))
    artifact.write_bytes(whole)
    assert fetched_distribution(tmp_path, "8", lambda _: None).version == "8.14.1"


def in_their_repository(tmp_path: Path) -> Path:
    theirs = release_of("8").archive.artifacts[0].file_in(tmp_path / "home" / ".m2" / "repository")
    theirs.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "artifact.zip", theirs)
    return theirs


def test_what_is_unpacked_is_what_was_checked(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file takes its name between the two."""
    install_maven(programs, SERVER)
    theirs, digest = in_their_repository(tmp_path), hashlib.file_digest
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("sonarqube-1/elasticsearch/lib/elasticsearch-8.14.1.jar", "changed")

    def then_replaced(*given: Any) -> Any:
        found = digest(*given)
        other.replace(theirs)
        return found

    monkeypatch.setattr("outbox.embedded.fetching.hashlib.file_digest", then_replaced)
    home = fetched_distribution(tmp_path, "8", lambda _: None).home
    assert (home / "lib" / "elasticsearch-8.14.1.jar").read_text() == "x"
