"""Reports which evidence is older than the program: commits of outbox/ and sql/ since each record. It fails only where
a whole release lies between (RELEASE.md): this must not need a clone with history or tags.

The whole run of the tests, the deployments and the nemesis (docs/reliability), the crash points (docs/reliability.md),
the labs (labs/RECORD.md, labs/CONCLUSIONS.md), the benchmarks (docs/performance), the table of docs/compatibility.md:
each names the commit that they ran on, and the day.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ("outbox", "sql")
SHOWN = 3
RELEASE = re.compile(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
LAB = re.compile(r"^\| \[?`(\w+)`\S* \| \w+ \|.* \| ([0-9a-f]{7,40}\S*) \| (\d{4}-\d\d-\d\d) \S+ \|$", re.MULTILINE)
CONCLUSION = re.compile(r"^`scripts/lab run (\w+)`.* began (\S+) .*commit (\S+?)[,:]", re.MULTILINE)
CRASHES = re.compile(r"deaths at each of\s+the \d+ points.*?\(commit ([0-9a-f]{7,40}), (\d{4}-\d\d-\d\d)", re.DOTALL)
COMPAT = re.compile(r"^\| `([\w.-]+)` \|.*\| (\d{4}-\d\d-\d\d) \S+, `(\S+)` \|$", re.MULTILINE)


class KeptRecord(NamedTuple):
    name: str
    commit: str
    day: str  # YYYY-MM-DD
    version: str = ""  # of the program, where the record has it


def records(root: Path) -> Iterator[KeptRecord]:
    for path in sorted((root / "docs" / "reliability").glob("nemesis*.tar.xz")):
        about = _about(path)
        day = datetime.fromtimestamp(about.get("storm_began", 0), UTC).date().isoformat()
        yield KeptRecord(path.name.removesuffix(".tar.xz"), about.get("commit", "unknown"), day)
    for name, about in _runs(root / "docs" / "reliability"):
        yield KeptRecord(name, about["commit"], about["at"][:10])
    for commit, day in CRASHES.findall(_text(root / "docs" / "reliability.md")):
        yield KeptRecord("crash points", commit, day)
    for name, commit, day in LAB.findall(_text(root / "labs" / "RECORD.md")):
        yield KeptRecord(f"lab {name}", commit, day)
    for name, day, commit in CONCLUSION.findall(_text(root / "labs" / "CONCLUSIONS.md")):
        yield KeptRecord(f"conclusion of {name}", commit, day)
    for name, day, commit in COMPAT.findall(_text(root / "docs" / "compatibility.md")):
        yield KeptRecord(f"compatibility {name}", commit, day)
    for path in sorted((root / "docs" / "performance").glob("*.json")):
        about = json.loads(_text(path))
        yield KeptRecord(f"benchmark {path.stem}", about["commit"], about.get("at", "")[:10], about.get("version", ""))


def _runs(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if text := _text(folder / "whole-run.json"):
        yield "scripts/test --all", json.loads(text)
    for part, about in json.loads(_text(folder / "deployed.json") or "{}").items():
        yield f"deployed {part}", about


def _about(path: Path) -> dict[str, Any]:
    """Read up to that file: to unpack all of them takes seconds."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name == "about.json" and (file := archive.extractfile(member)):
                about: dict[str, Any] = json.load(file)
                return about
    return {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def overtaken(root: Path) -> list[str]:
    """Records that are not younger than the release before the newest one: all that a release brought has changed the
    program since. By the version that they name, else by the day."""
    released = RELEASE.findall(_text(root / "CHANGELOG.md"))
    if len(released) < 2:
        return []
    before, day = released[1]
    return [
        f"{record.name}: {record.version or record.day or 'no day'}, before {released[0][0]} by a release"
        for record in records(root)
        if (_parts(record.version) < _parts(before) if record.version not in ("", before) else record.day <= day)
    ]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def since(root: Path, commit: str) -> list[str] | None:
    """Commits of the program after this one, newest first. None if this repository does not have it."""
    base = commit.removesuffix("-dirty")
    command = ["git", "-C", str(root), "log", "--format=%h", f"{base}..HEAD", "--", *PROGRAM]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.split() if answer.returncode == 0 else None


def outdated(root: Path) -> list[str]:
    """One line per commit of evidence, if the program has changed since or the commit is not clean."""
    ran: dict[str, list[str]] = {}
    for record in records(root):
        ran.setdefault(record.commit, []).append(record.name)
    return [line for commit, names in ran.items() if (line := _line(root, commit, names))]


def _line(root: Path, commit: str, names: list[str]) -> str:
    moved = since(root, commit)
    what = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    if moved is None:
        return f"{commit}: not a commit of this repository ({what})"
    if not moved:
        return f"{commit}: with changes that were not committed ({what})" if commit.endswith("-dirty") else ""
    newest = ", ".join(moved[:SHOWN]) + (", ..." if len(moved) > SHOWN else "")
    return f"{commit}: {len(moved)} commits of outbox/ and sql/ since, newest {newest} ({what})"


def main() -> int:
    lines = outdated(ROOT)
    for line in lines:
        print(f"  older than the program: {line}", file=sys.stderr)
    if not lines:
        print("  all evidence is up to date", file=sys.stderr)
    late = overtaken(ROOT)
    for line in late:
        print(f"  older by a release: {line}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
