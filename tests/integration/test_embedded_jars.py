"""Getting Kafka's jars: all or none, checked by digest, taken from a person's own repository where they are."""

import hashlib
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outbox.embedded import fetching
from outbox.embedded.errors import ArchiveDamaged
from outbox.embedded.fetching import fetched
from outbox.embedded.pins import Artifact, Download

# Stands in for Maven: writes each jar that the project asks for; its content is its artifact.
MAVEN = f"""#!{sys.executable}
import pathlib, sys
from xml.etree import ElementTree
repository = pathlib.Path(next(a.split("=", 1)[1] for a in sys.argv if a.startswith("-Dmaven.repo.local=")))
for one in ElementTree.parse(sys.argv[sys.argv.index("-f") + 1]).findall("dependencies/dependency"):
    group, artifact, version = (one.findtext(name) for name in ("groupId", "artifactId", "version"))
    folder = repository.joinpath(*group.split("."), artifact, version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{{artifact}}-{{version}}.jar").write_text(artifact)
    with open("COUNT", "a") as file:
        file.write(artifact + " ")
"""


def jar(artifact: str, content: str) -> Artifact:
    return Artifact("org.example", artifact, "1", hashlib.sha256(content.encode()).hexdigest(), 1)


JARS = Download("Example 1", "example-1", (jar("first", "first"), jar("second", "second")), 1)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Maven that writes here what it was asked for."""
    programs, count = tmp_path / "bin", tmp_path / "count"
    programs.mkdir()
    (programs / "mvn").write_text(MAVEN.replace("COUNT", str(count)))
    (programs / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(fetching, "user_home", lambda: tmp_path / "home")
    return count


def test_all_jars_come_in_one_run_and_everyone_may_read_them(count: Path, tmp_path: Path) -> None:
    home = fetched(JARS, tmp_path / "cache", lambda _: None)
    assert {path.name: path.read_text() for path in home.iterdir()} == {
        "first-1.jar": "first",
        "second-1.jar": "second",
    }
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444 for path in home.iterdir())
    assert count.read_text() == "first second "
    assert not list((tmp_path / "cache" / "fetch").rglob("*.jar"))
    assert fetched(JARS, tmp_path / "cache", lambda _: None) == home
    assert count.read_text() == "first second "


def test_a_jar_with_another_digest_is_named_and_nothing_is_kept(count: Path, tmp_path: Path) -> None:
    changed = replace(JARS, artifacts=(JARS.artifacts[0], jar("second", "what it was")))
    with pytest.raises(ArchiveDamaged, match=r"org\.example:second:1$"):
        fetched(changed, tmp_path / "cache", lambda _: None)
    assert not (tmp_path / "cache" / "example-1").exists()
    assert not list((tmp_path / "cache" / "fetch").rglob("*.jar"))
