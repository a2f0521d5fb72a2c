"""A disk that is too small, full in the middle, or read-only: said before minutes are spent, with the remedy."""

import hashlib
import os
import pwd
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outbox.embedded import fetching
from outbox.embedded.errors import FolderNotWritable, NoSpace
from outbox.embedded.fetching import fetched
from outbox.embedded.folders import check_space
from outbox.embedded.pins import ELASTICSEARCH_8, Download
from tests.fixtures.embedded import cannot_show


def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        cannot_show(f"this system lets nobody mount a disk here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "tiny", "size=40m")


def silent(_: str) -> None:
    pass


def test_a_need_that_no_disk_can_meet_names_folder_need_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        NoSpace, match=r"OUTBOX_DATA_DIR.*/not/yet has \d+ MB free; 10000000000 MB are needed \(tests\)"
    ):
        check_space(tmp_path / "not" / "yet", 10_000_000_000, "tests")


def test_a_tiny_disk_is_refused_before_anything_is_fetched(tiny_disk: Path) -> None:
    said: list[str] = []
    with pytest.raises(NoSpace, match=str(tiny_disk)):
        fetched(ELASTICSEARCH_8, tiny_disk, said.append)
    assert said == []


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Not root, which can write everywhere."""
    was = os.getresuid()
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody").pw_uid
        os.setresuid(nobody, nobody, 0)
    yield
    os.setresuid(*was)


def test_a_folder_of_somebody_else_is_refused(ordinary_user: None) -> None:
    """Its own parents are open, so that it is this folder that refuses."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-room-"))
    try:
        folder.chmod(0o000)
        with pytest.raises(FolderNotWritable, match=f"OUTBOX_DATA_DIR.*{folder}"):
            check_space(folder / "cache" / "outbox", 1, "a test")
    finally:
        folder.chmod(0o700)
        folder.rmdir()


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Download:
    """An archive in a person's own repository that says it is small, and unpacks to 60 MB."""
    archive = ELASTICSEARCH_8.artifacts[0]
    target = archive.file_in(tmp_path / ".m2" / "repository")
    target.parent.mkdir(parents=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("carrier/elasticsearch/lib/large.jar", bytes(60_000_000))
    monkeypatch.setattr(fetching, "user_home", lambda: tmp_path)
    monkeypatch.setattr(fetching, "FOR_SERVERS", 0)
    small = replace(archive, size=1, sha256=hashlib.sha256(target.read_bytes()).hexdigest())
    return replace(ELASTICSEARCH_8, artifacts=(small,), unpacked_megabytes=1)


def test_a_disk_that_fills_up_in_the_middle_leaves_nothing_half_done(large: Download, tiny_disk: Path) -> None:
    with pytest.raises(NoSpace, match=f"OUTBOX_DATA_DIR.*{tiny_disk}: No space left on device"):
        fetched(large, tiny_disk, silent)
    assert [path.name for path in tiny_disk.iterdir()] == ["fetch"]
    assert [path.name for path in (tiny_disk / "fetch").iterdir()] == ["lock"]
