"""How commands print: cells, JSON, questions."""

import json
from datetime import UTC, datetime
from uuid import UUID

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


def test_a_table_off_a_terminal_is_not_folded_and_has_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    cli.table(("id", "text"), [("1", "x" * 500), ("22", "[bold]y[/]")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "1   " + "x" * 500
    assert lines[2] == "22  [bold]y[/]"


def test_a_table_without_rows_says_so_beside_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    cli.table(("id",), [], empty="no event fits")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("id\n", "no event fits\n")
    cli.table(("id",), [("1",)], empty="no event fits")
    assert capsys.readouterr().err == ""


def test_json_keeps_a_payload_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    payload = b'{"big": 12345678901234567890, "p": 1.10}'
    cli.as_json({"payload": cli.raw_json(payload), "none": cli.raw_json(None)})
    text = capsys.readouterr().out
    assert payload.decode() in text
    assert json.loads(text)["none"] is None


def test_json_knows_times_ids_and_sets(capsys: pytest.CaptureFixture[str]) -> None:
    id = UUID(int=1)
    cli.as_json({"at": datetime(2026, 2, 3, tzinfo=UTC), "id": id, "set": {1}, "tuple": (1,)}, compact=True)
    assert json.loads(capsys.readouterr().out) == {
        "at": "2026-02-03T00:00:00.000Z",
        "id": str(id),
        "set": [1],
        "tuple": [1],
    }


def test_where_nobody_can_be_asked_yes_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match="--yes"):
        cli.confirm("Remove it?", yes=False)
    cli.confirm("Remove it?", yes=True)
