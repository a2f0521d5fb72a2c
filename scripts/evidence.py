"""Reports which evidence is older than the program: commits of outbox/ and sql/ since each record. It never fails.

The nemesis (docs/reliability), the labs (labs/RECORD.md, labs/CONCLUSIONS.md) and the benchmarks (docs/performance)
each name the commit that they ran on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ("outbox", "sql")
SHOWN = 3


def records(root: Path) -> Iterator[tuple[str, str]]:
    """The name and the commit of each record."""
    for path in sorted((root / "docs" / "reliability").glob("nemesis*.tar.xz")):
        with tarfile.open(path) as archive:
            file = archive.extractfile("about.json")
            yield path.name.removesuffix(".tar.xz"), json.load(file)["commit"] if file else "unknown"
    record = (root / "labs" / "RECORD.md").read_text(encoding="utf-8")
    for name, commit in re.findall(
        r"^\| \[?`(\w+)`\S* \| \w+ \|.* \| ([0-9a-f]{7,40}\S*) \| \S+ \S+ \|$", record, re.MULTILINE
    ):
        yield f"lab {name}", commit
    conclusions = root / "labs" / "CONCLUSIONS.md"
    if conclusions.exists():
        found = re.findall(
            r"^`scripts/lab run (\w+)`.* commit (\S+?)[,:]", conclusions.read_text("utf-8"), re.MULTILINE
        )
        yield from ((f"conclusion of {name}", commit) for name, commit in found)
    for path in sorted((root / "docs" / "performance").glob("*.json")):
        yield f"benchmark {path.stem}", json.loads(path.read_text(encoding="utf-8"))["commit"]


def since(root: Path, commit: str) -> list[str] | None:
    """Commits of the program after this one, newest first. None if this repository does not have it."""
    base = commit.removesuffix("-dirty")
    command = ["git", "-C", str(root), "log", "--format=%h", f"{base}..HEAD", "--", *PROGRAM]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.split() if answer.returncode == 0 else None


def outdated(root: Path) -> list[str]:
    """One line per commit of evidence, if the program has changed since or the commit is not clean."""
    ran: dict[str, list[str]] = {}
    for name, commit in records(root):
        ran.setdefault(commit, []).append(name)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
