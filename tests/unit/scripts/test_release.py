"""scripts/release: archives of equal bytes, what is signed, the index on loopback, and the limits of its steps."""

import gzip
import tarfile
import time
from pathlib import Path

import pytest

from tests.deployed.shell import DeploymentFailed, run
from tests.release import __main__ as rehearsal
from tests.release import archives, paperwork


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    made = tmp_path / "dist"
    made.mkdir()
    (made / "a.whl").write_bytes(b"wheel")
    (made / "b.tar.gz").write_bytes(b"sources")
    return made


def test_an_archive_has_equal_bytes_whoever_makes_it_and_what_links_lead_to(tmp_path: Path) -> None:
    made = []
    for name, mode in (("one", 0o600), ("two", 0o664)):
        folder = tmp_path / name
        (folder / "real").mkdir(parents=True)
        (folder / "real" / "values.yaml").write_text("replicas: 2\n")
        (folder / "real" / "values.yaml").chmod(mode)
        (folder / "linked").symlink_to("real")
        made.append(archives.archive(archives.files_of(folder, "chart"), tmp_path / f"{name}.tgz"))
        time.sleep(0.01)
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as opened:
        assert opened.getnames() == ["chart/linked/values.yaml", "chart/real/values.yaml"]
        assert {(member.isreg(), member.uid, member.uname, member.mode) for member in opened} == {(True, 0, "", 0o644)}
    with gzip.open(made[0]) as raw:
        assert b"replicas: 2" in raw.read()


def signed(dist: Path, scratch: Path) -> tuple[Path, Path]:
    subjects = {path.name: archives.digest(path) for path in dist.iterdir()}
    return paperwork.sign(paperwork.statement(subjects, "abc1234", "1.2.3"), scratch, dist, "1.2.3")


def test_a_statement_names_the_commit_and_is_verified_by_its_key(dist: Path, tmp_path: Path) -> None:
    envelope, public = signed(dist, tmp_path)
    assert paperwork.verify(envelope, public, tmp_path, dist) == 2
    assert not (tmp_path / "key.pem").exists(), "the key of a rehearsal is kept by nobody"
    said = paperwork.statement({"a": "12"}, "abc1234", "1.2.3")
    assert said["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"] == {"gitCommit": "abc1234"}


def test_an_artefact_that_was_changed_after_the_signature_is_found(dist: Path, tmp_path: Path) -> None:
    envelope, public = signed(dist, tmp_path)
    (dist / "a.whl").write_bytes(b"another wheel")
    with pytest.raises(ValueError, match=r"a\.whl is not what was signed"):
        paperwork.verify(envelope, public, tmp_path, dist)


def test_a_step_that_hangs_ends_with_its_command() -> None:
    began = time.monotonic()
    with pytest.raises(DeploymentFailed, match=r"a command: not done within 0\.3 s"), rehearsal.step("a command", 0.3):
        run("sleep", "30")
    assert time.monotonic() - began < 10
