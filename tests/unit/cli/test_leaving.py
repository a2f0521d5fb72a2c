"""How a command ends: one place turns an error into words and an exit code, and no secret into either."""

import os

import pytest

from outbox import errors
from outbox.cli import guarded
from outbox.errors import ConfigProblem, ConfigurationError, OutboxError


def leave(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as left:
        guarded(fail)
    out, err = capsys.readouterr()
    code = left.value.code
    assert isinstance(code, int)
    return code, out, err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OutboxError("x"), 1),
        (errors.NotFound("x"), 1),
        (errors.Conflict("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.PartlyDone("x"), 3),
        (errors.DatabaseDown("x"), 75),
        (errors.ElasticsearchDown("x"), 75),
        (errors.SchemaMismatch("x"), 78),
        (errors.WrongProduct("x"), 78),
        (errors.WorkerIdTaken("x"), 78),
        (ConfigurationError([ConfigProblem("A", "is wrong", "Correct it.")]), 78),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_leaves_with_its_own_code_and_prints_no_data(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = leave(error, capsys)
    assert left == code
    assert out == ""
    if isinstance(error, OutboxError):
        assert err == f"outbox: {error.message}\n"


def test_a_bug_shows_where_it_is_and_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    password = "hunter2"
    code, out, err = leave(RuntimeError(f"postgresql://u:{password}@h/d"), capsys)
    assert (code, out) == (1, "")
    assert "RuntimeError" in err
    assert "test_leaving.py" in err
    assert password not in err


def test_a_command_runs_without_the_variables_by_which_libpq_changes_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PGTZ", "PGDATESTYLE", "PGOPTIONS", "PGCLIENTENCODING")
    for name in (*names, "PGPASSFILE"):
        monkeypatch.setenv(name, "x")
    seen: list[str] = []
    guarded(lambda: seen.extend(name for name in os.environ if name.startswith("PG")))
    assert seen == ["PGPASSFILE"]
