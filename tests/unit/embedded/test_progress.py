"""The progress of a download: one rewritten line on a terminal, a few lines elsewhere."""

import io
import sys

import pytest

from outbox.embedded.progress import DownloadMeter


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def fetch(said: list[str]) -> None:
    meter = DownloadMeter("fetching Elasticsearch 8.14.1", 759, said.append)
    for done in range(0, 765, 5):
        meter.show(done)
    meter.close()


def test_on_a_terminal_one_line_is_rewritten_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, said = Screen(), list[str]()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    fetch(said)
    drawn = screen.getvalue()
    assert said == []
    assert "\n" not in drawn
    assert "\r\x1b[Kfetching Elasticsearch 8.14.1: 380 of 759 MB" in drawn
    assert drawn.endswith("759 of 759 MB\r\x1b[K")
    assert "\x1b[3" not in drawn  # no colour, with or without NO_COLOR


@pytest.mark.parametrize("screen", [io.StringIO(), Screen()])  # a log; a terminal that cannot move its cursor
def test_elsewhere_it_is_a_line_per_quarter(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO) -> None:
    said: list[str] = []
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "dumb")
    fetch(said)
    assert said == [f"fetching Elasticsearch 8.14.1: {done} of 759 MB" for done in (190, 380, 570)]
    assert screen.getvalue() == ""
