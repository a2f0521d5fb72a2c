"""Owns what a run left behind: figures from its JUnit file, a line of the table, a row of docs/compatibility.md."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from tests.compat.combination import COMBINATIONS, RESULTS, ROOT

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- compat: written by scripts/compat --record -->", "<!-- /compat -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`word` is passed, FAILED or MISSING; `detail` says what failed or what was tried."""

    name: str
    word: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    detail: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    at: str = ""

    @property
    def figures(self) -> str:
        told = [f"{self.passed:,} passed", *([f"{self.failed} failed"] if self.failed else [])]
        told += [f"{self.skipped} skipped"] if self.skipped else []
        return f"{', '.join(told)} in {self.seconds} s" if self.word != "MISSING" else "not run"

    def save(self) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_junit(path: Path) -> tuple[int, int, int, int]:
    """Passed, failed, skipped, seconds."""
    total = failed = skipped = 0
    seconds = 0.0
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
        seconds += float(suite.get("time", 0))
    return total - failed - skipped, failed, skipped, round(seconds)


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--", "outbox", "sql", "tests/compat") else ""
    return git("rev-parse", "--short", "HEAD") + changed


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


def table(outcomes: Sequence[Outcome]) -> str:
    """What people see in the end."""
    rows: list[tuple[str, ...]] = [("run", "verdict", "tests", "PostgreSQL", "search server", "Python", "pooler")]
    for o in outcomes:
        v = o.versions
        rows.append(
            (
                o.name,
                o.word,
                o.figures,
                *(v.get(part, "-") for part in ("postgresql", "elasticsearch", "python", "pooler")),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines + [f"{o.name}: {o.detail}" for o in outcomes if o.detail])


def record(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Every result that is there, into docs/compatibility.md. Runs without one keep their row."""
    order = [combination.name for combination in COMBINATIONS] + ["upgrade"]
    text = page.read_text()
    rows = dict(re.findall(r"^(?=\| `([\w.-]+)` \|)(.*)$", text[text.index(BEGIN) : text.index(END)], re.MULTILINE))
    rows |= {path.stem: _row(Outcome(**json.loads(path.read_text()))) for path in results.glob("*.json")}
    names = sorted(rows, key=lambda name: order.index(name) if name in order else len(order))
    head = ["| run | PostgreSQL | search server | Python | pooler | verdict | when (UTC), commit |", f"|{'---|' * 7}"]
    made = "\n".join([BEGIN, *head, *(rows[name] for name in names), END])
    page.write_text(text[: text.index(BEGIN)] + made + text[text.index(END) + len(END) :])


def _row(o: Outcome) -> str:
    parts = " | ".join(o.versions.get(part, "-") for part in ("postgresql", "elasticsearch", "python", "pooler"))
    aside = f" ({o.detail})" if o.detail else ""
    verdict = f"{o.figures}{aside}" if o.word == "passed" else f"**{o.word}**: {o.figures}{aside}"
    return f"| `{o.name}` | {parts} | {verdict} | {o.at}, `{o.commit}` |"
