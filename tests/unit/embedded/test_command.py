"""`python -m outbox.embedded`: help is printed, and invalid arguments start nothing."""

import pytest

from outbox.embedded import __main__ as command


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been started or fetched: its release."""
    asked: list[str] = []
    monkeypatch.delenv("OUTBOX_ES_VERSION", raising=False)
    monkeypatch.setattr(command, "serve", asked.append)
    monkeypatch.setattr(command, "fetch", asked.append)
    monkeypatch.setattr(command, "fetch_kafka", lambda wanted: asked.extend(("Kafka", wanted)))
    return asked


@pytest.mark.parametrize("arguments", [["--help"], ["fetch", "-h"]])
def test_help_is_shown_and_starts_nothing(
    started: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert command.main(arguments) == 0
    assert "python -m outbox.embedded serve" in capsys.readouterr().out
    assert started == []


@pytest.mark.parametrize("arguments", ["", "stop", "serve opensearch 1g", "fetch solr"])
def test_what_is_not_understood_starts_nothing(
    started: list[str], capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    assert command.main(arguments.split()) == 2
    assert "fetch connect" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("serve", ["8"]),
        ("serve opensearch-2.19.6", ["opensearch-2.19.6"]),
        ("fetch", ["8"]),
        ("fetch connect", ["Kafka", "connect"]),
    ],
)
def test_a_release_may_be_given(started: list[str], arguments: str, asked: list[str]) -> None:
    assert command.main(arguments.split()) == 0
    assert started == asked
