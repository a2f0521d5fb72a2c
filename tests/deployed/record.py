"""Owns what a run left behind: docs/reliability/deployed.json, one entry per part with its commit and its figures."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.deployed.shell import ROOT, say

RECORD = ROOT / "docs" / "reliability" / "deployed.json"


@dataclass(slots=True)
class Outcome:
    """`word` is passed, FAILED or MISSING; `detail` says what failed or is missing."""

    part: str
    at: str
    commit: str
    word: str = "passed"
    seconds: int = 0
    detail: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begun(cls, part: str) -> "Outcome":
        return cls(part, datetime.now(UTC).isoformat(timespec="seconds"), commit())

    @property
    def line(self) -> str:
        return f"{self.part:<12} {self.word:<8} {self.seconds} s{': ' if self.detail else ''}{self.detail}"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def record(outcomes: Sequence[Outcome], path: Path = RECORD) -> None:
    """A part that was not run now keeps its entry."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept |= {outcome.part: asdict(outcome) for outcome in outcomes if outcome.word != "MISSING"}
    path.write_text(json.dumps(kept, indent=1) + "\n")
    say(f"recorded in {path.name}: commit it")
