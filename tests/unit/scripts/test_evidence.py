"""scripts/evidence.py: every record is found, later commits of the program are reported, a release in between fails."""

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


ONE_RELEASE = "## Unreleased\n\n## 0.1.0 - 2026-11-17\n"
TWO_RELEASES = "## Unreleased\n\n## 0.2.0 - 2026-12-20\n\n## 0.1.0 - 2026-11-17\n"


def judged(checkout: Path, changelog: str, **about: str) -> list[str]:
    """What is reported of one benchmark."""
    (checkout / "CHANGELOG.md").write_text(changelog)
    (checkout / "labs" / "RECORD.md").write_text("")
    (checkout / "docs" / "performance" / "drain.json").write_text(json.dumps({"commit": "abc1234", **about}))
    found: list[str] = EVIDENCE["overtaken"](checkout)
    return found


@pytest.mark.parametrize(
    ("about", "is_late"),
    [
        ({"at": "2026-11-16T10:00:00+00:00"}, True),  # led to 0.1.0
        ({"at": "2026-11-17T23:00:00+00:00"}, True),  # of its very day: of which side of it nobody knows
        ({"at": "2026-11-17T23:00:00+00:00", "version": "0.1.0"}, True),
        ({"at": "2026-12-01T10:00:00+00:00", "version": "0.1.0"}, False),  # led to 0.2.0
        ({"at": "2026-12-01T10:00:00+00:00"}, False),
        ({"at": "2026-12-21T10:00:00+00:00", "version": "0.2.0"}, False),
        ({"at": "2026-12-21T10:00:00+00:00", "version": "0.0.9"}, True),  # an old checkout, run late
        ({"at": "2026-01-01T10:00:00+00:00", "version": "0.2.0"}, False),  # a wrong clock
        ({}, True),
    ],
)
def test_evidence_from_before_the_release_before_the_newest_is_late(
    checkout: Path, about: dict[str, str], is_late: bool
) -> None:
    assert bool(judged(checkout, TWO_RELEASES, **about)) is is_late
    assert judged(checkout, ONE_RELEASE, **about) == []
