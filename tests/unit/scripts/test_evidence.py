"""scripts/evidence.py: every record is found, and later commits of the program are reported."""

import json
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
EVIDENCE: dict[str, Callable[..., Any]] = runpy.run_path(str(ROOT / "scripts" / "evidence.py"))


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit of the program, and records that name it."""
    for folder in ("outbox", "labs", "docs/performance"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "labs" / "RECORD.md").write_text("")
    git(tmp_path, "init", "-q")
    committed(tmp_path, "outbox/one.py")
    recorded(tmp_path, git(tmp_path, "rev-parse", "--short", "HEAD"))
    return tmp_path


def committed(checkout: Path, path: str) -> str:
    (checkout / path).write_text("")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", path)
    return git(checkout, "rev-parse", "--short", "HEAD")


def recorded(checkout: Path, commit: str) -> None:
    (checkout / "docs" / "performance" / "drain.json").write_text(json.dumps({"commit": commit}))
    row = f"| `bad_op` | PASS | One bad row failed; 1 done. | 17 | {commit} | 2026-11-15 08:31 |\n"
    (checkout / "labs" / "RECORD.md").write_text(row)


def test_evidence_of_this_program_is_not_reported(checkout: Path) -> None:
    committed(checkout, "labs/other.py")
    assert EVIDENCE["outdated"](checkout) == []


def test_commits_of_the_program_since_are_named_with_what_is_older(checkout: Path) -> None:
    first = json.loads((checkout / "docs" / "performance" / "drain.json").read_text())["commit"]
    newer = committed(checkout, "outbox/two.py")
    assert EVIDENCE["outdated"](checkout) == [
        f"{first}: 1 commits of outbox/ and sql/ since, newest {newer} (lab bad_op, benchmark drain)"
    ]


@pytest.mark.parametrize(
    ("commit", "told"),
    [("0000000", "not a commit of this repository"), ("{}-dirty", "with changes that were not committed")],
)
def test_a_commit_that_proves_nothing_is_reported(checkout: Path, commit: str, told: str) -> None:
    recorded(checkout, commit.format(git(checkout, "rev-parse", "--short", "HEAD")))
    [line] = EVIDENCE["outdated"](checkout)
    assert told in line


def test_every_record_of_this_repository_is_found() -> None:
    names = [name for name, _ in EVIDENCE["records"](ROOT)]
    labs = {path.stem for path in (ROOT / "labs" / "experiments").glob("*.py") if not path.stem.startswith("_")}
    benchmarks = {path.stem for path in (ROOT / "docs" / "performance").glob("*.json")}
    assert "nemesis" in names
    assert {f"lab {name}" for name in labs} <= set(names)
    assert {f"benchmark {name}" for name in benchmarks} <= set(names)
