"""How commands print: cells, JSON, questions."""

from datetime import UTC, datetime

import pytest

from outbox import cli
from outbox.errors import UsageError


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        (0, "0"),
        (1.23456, "1.23"),
        (datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-02-03 04:05:06Z"),
        ("a\x1b[31mb\n", "a\\x1b[31mb\\n"),  # nothing from a row may steer the terminal
        ("[bold]x[/]", "[bold]x[/]"),
        ("ünïcödé 日本", "ünïcödé 日本"),
    ],
)
def test_a_cell_shows_its_value_and_nothing_acts(value: object, told: str) -> None:
    assert cli.shown(value) == told


def test_where_nobody_can_be_asked_yes_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="--yes"):
        cli.confirm("Remove it?", yes=False)
    cli.confirm("Remove it?", yes=True)
