"""The order of test files: the longest of a layer first, by what the runs before have measured."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures import durations
from tests.fixtures.dispatch import Verdict
from tests.fixtures.durations import COMMITTED, KEY, Durations, as_text

ROOT = Path(__file__).parents[2]
A, B, C = "tests/unit/test_a.py", "tests/unit/test_b.py", "tests/unit/test_c.py"


def run_of(files: dict[str, float], *, known: dict[str, float], missing: str = "", **options: object) -> dict[str, Any]:
    """What a run leaves in the cache, of one test per file."""
    kept: dict[str, Any] = {KEY: known}
    verdict, seconds = Verdict(), Durations(known)
    for file, took in files.items():
        verdict.collected[f"{file}::test"] = None
        if file != missing:
            verdict.reported.add(f"{file}::test")
        for when in ("setup", "call"):
            seconds.pytest_runtest_logreport(SimpleNamespace(nodeid=f"{file}::test", when=when, duration=took / 2))  # type: ignore[arg-type]
    option = {"collectonly": False, "keyword": "", "markexpr": "", "write_durations": False, **options}
    config = SimpleNamespace(
        option=SimpleNamespace(**option),
        args=["tests"],
        rootpath=ROOT,
        cache=SimpleNamespace(get=kept.get, set=kept.__setitem__),
        pluginmanager=SimpleNamespace(get_plugin=lambda _: verdict),
    )
    seconds.pytest_sessionfinish(SimpleNamespace(config=config))  # type: ignore[arg-type]
    return dict(kept[KEY])


def test_the_longest_file_goes_first_and_an_unknown_one_last() -> None:
    assert sorted([A, B, C], key=Durations({B: 4.0, C: 30.0}).rank) == [C, B, A]


def test_a_run_measures_what_it_ran_and_keeps_what_it_did_not() -> None:
    assert run_of({A: 5.0}, known={A: 9.0, B: 4.0}) == {A: 5.0, B: 4.0}


def test_a_file_that_was_not_run_to_its_end_is_not_measured() -> None:
    assert run_of({A: 5.0, B: 1.0}, known={B: 4.0}, missing=B) == {A: 5.0, B: 4.0}


def test_a_run_of_some_tests_measures_no_file() -> None:
    assert run_of({A: 0.1}, known={A: 9.0}, keyword="one") == {A: 9.0}


def test_only_files_that_are_there_and_long_are_written_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations, "COMMITTED", tmp_path / "durations.json")
    here = "tests/unit/test_durations.py"
    run_of({here: 3.4, "tests/conftest.py": 2.0}, known={"tests/gone.py": 9.0}, write_durations=True)
    assert json.loads((tmp_path / "durations.json").read_text()) == {here: 3}


def test_the_files_that_are_written_down_are_there() -> None:
    """After a move `scripts/test --write-durations tests`, or the line by hand."""
    text = COMMITTED.read_text(encoding="utf-8")
    assert as_text(json.loads(text), ROOT) == text
