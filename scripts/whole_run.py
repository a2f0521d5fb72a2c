"""Keeps the last whole run that passed, with its commit, in docs/reliability/whole-run.json.

`scripts/test --all` calls it with a file that has a line per run of pytest (tests/conftest.py), the seconds, the
seconds of CPU, and the lines of the summary.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "reliability" / "whole-run.json"


def commit() -> str:
    # What the run itself has written is no change of the program.
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def as_text(tallies: str, seconds: int, cpu_seconds: int, steps: list[str], where: str) -> str:
    found = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": where,
        "minutes": round(seconds / 60, 1),
        "cpu_minutes": round(cpu_seconds / 60, 1),
        "tests": [json.loads(line) for line in tallies.splitlines()],
        "steps": steps,
    }
    return json.dumps(found, indent=1) + "\n"


def main(kept: str, seconds: str, cpu_seconds: str, *steps: str) -> None:
    tallies = Path(kept).read_text(encoding="utf-8")
    RECORD.write_text(as_text(tallies, int(seconds), int(cpu_seconds), [*steps], commit()), encoding="utf-8")
    print(f"recorded in {RECORD.relative_to(ROOT)}: commit it", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
