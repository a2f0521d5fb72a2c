"""The progress of a download: a line per tenth, on a terminal and in a log."""

import subprocess
from typing import Any

import pytest

from outbox.embedded import fetching
from outbox.embedded.pins import Artifact, Download

WANTED = Download("Elasticsearch 8.14.1", "es", (Artifact("g", "a", "1", "", 759_000_000),), 121)


class Maven:
    """Ends when its download is there."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def wait(self, seconds: float) -> None:
        if self.sizes:
            raise subprocess.TimeoutExpired("mvn", seconds)


def test_a_download_is_a_line_per_tenth(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    sizes, said = [100, *range(100, 870, 5)], list[str]()
    maven: Any = Maven(sizes)
    monkeypatch.setattr(fetching, "_megabytes", lambda _: sizes.pop(0))
    fetching._show_progress(maven, WANTED, tmp_path, said.append)
    assert said[0] == "downloading Elasticsearch 8.14.1 with Maven (only once, about 759 MB)"
    places = (80, 155, 230, 305, 380, 460, 535, 610, 685)
    assert said[1:] == [f"downloading Elasticsearch 8.14.1: {done} of 759 MB" for done in places]
