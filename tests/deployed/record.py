"""Owns what a run left behind: docs/reliability/deployed.json, one entry per part with its commit and its figures."""

import json
import subprocess
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


def save(outcome: Outcome, folder: Path) -> None:
    """Beside the programs, so that a run which was not to be recorded can still be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{outcome.part}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")


def record(folder: Path, path: Path = RECORD) -> None:
    """Every result of the folder; a part without one keeps its entry."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    found = [json.loads(each.read_text()) for each in sorted(folder.glob("*.json"))]
    kept |= {outcome["part"]: outcome for outcome in found if outcome["word"] != "MISSING"}
    path.write_text(json.dumps(kept, indent=1) + "\n")
    say(f"recorded in {path.name}: commit it")
