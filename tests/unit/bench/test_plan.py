"""Sessions of benchmarks: what has a full result of this program is not run again, and the rest fits the time."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import plan
from bench.result import RESULTS


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of the program and of two benchmarks."""
    for path in ("outbox/one.py", "bench/drain.py", "bench/flat.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    git("add", "-A")
    git("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", "commit", "-qm", "one")
    return tmp_path


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def kept(name: str, folder: Path = RESULTS, **more: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"benchmark": name, "smoke": False, "turned": {}, "at": "2026-11-17", "seconds": 90}
    about["commit"] = git("rev-parse", "--short", "HEAD")
    (folder / f"{name}-1.json").write_text(json.dumps({**about, **more}))


def test_a_finished_benchmark_is_not_run_again(checkout: Path) -> None:
    assert plan.missing(["drain", "flat"]) == ["drain", "flat"]
    kept("drain")
    assert plan.missing(["drain", "flat"]) == ["flat"]
    kept("flat", plan.KEPT)
    assert plan.missing(["drain", "flat"]) == []


@pytest.mark.parametrize("changed", ["outbox/one.py", "bench/drain.py"])
def test_a_change_of_the_program_or_of_the_benchmark_asks_for_a_new_run(checkout: Path, changed: str) -> None:
    kept("drain")
    (checkout / "bench" / "flat.py").write_text("x = 1\n")
    assert plan.missing(["drain"]) == []
    (checkout / changed).write_text("x = 1\n")
    assert plan.missing(["drain"]) == ["drain"]


@pytest.mark.parametrize(
    "other", [{"smoke": True}, {"turned": {"lanes": 4}}, {"turned": {"rounds": 2}}, {"commit": "0000000"}]
)
def test_a_result_that_proves_nothing_about_this_program_does_not_count(checkout: Path, other: dict[str, Any]) -> None:
    kept("drain", **other)
    assert plan.missing(["drain"]) == ["drain"]
