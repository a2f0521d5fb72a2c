"""A disk that is too small, full in the middle, or read-only: said before minutes are spent, with the remedy."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.embedded.errors import NoSpace
from outbox.embedded.fetching import fetched
from outbox.embedded.pins import ELASTICSEARCH_8
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


def test_a_tiny_disk_is_refused_before_anything_is_fetched(tiny_disk: Path) -> None:
    said: list[str] = []
    with pytest.raises(NoSpace, match=str(tiny_disk)):
        fetched(ELASTICSEARCH_8, tiny_disk, said.append)
    assert said == []
