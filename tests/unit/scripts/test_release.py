"""scripts/release: archives of equal bytes, what is signed, the index on loopback, and the limits of its steps."""

from pathlib import Path

import pytest

from tests.release import archives, paperwork


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    made = tmp_path / "dist"
    made.mkdir()
    (made / "a.whl").write_bytes(b"wheel")
    (made / "b.tar.gz").write_bytes(b"sources")
    return made


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
