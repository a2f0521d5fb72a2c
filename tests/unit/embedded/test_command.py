"""`python -m outbox.embedded`: help is printed, and invalid arguments start nothing."""

import pytest

from outbox.embedded import __main__ as command


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The heaps of the servers that would have been started."""
    heaps: list[str] = []
    monkeypatch.setattr(command, "serve", lambda heap="1g": heaps.append(heap))
    return heaps


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["fetch", "-h"]])
def test_help_is_shown_and_starts_nothing(
    started: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert command.main(arguments) == 0
    assert "python -m outbox.embedded serve" in capsys.readouterr().out
    assert started == []


@pytest.mark.parametrize("arguments", [[], ["stop"], ["serve", "much"], ["serve", "0g"], ["serve", "1g", "2g"]])
def test_what_is_not_understood_starts_nothing(
    started: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert command.main(arguments) == 2
    assert "optional heap size" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(("arguments", "heap"), [(["serve"], "1g"), (["serve", "512m"], "512m")])
def test_a_heap_may_be_given(started: list[str], arguments: list[str], heap: str) -> None:
    assert command.main(arguments) == 0
    assert started == [heap]
