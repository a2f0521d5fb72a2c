"""Owns how findings of `doctor` and `index check` are printed, and the exit code that they make."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from outbox.cli import output
from outbox.ports import Finding, Level

_MARKS = {Level.OK: ("ok", "green"), Level.WARN: ("warning", "yellow"), Level.BAD: ("problem", "bold red")}
_UNSEEN = ("unknown", "cyan")


def print_findings(findings: Iterable[Finding], *, json: bool) -> list[Finding]:
    """As they are made, so that a slow look shows what it follows; as JSON all at once."""
    if json:
        found = list(findings)
        output.as_json({"ok": all(f.level is not Level.BAD for f in found), "findings": [_record(f) for f in found]})
        return found
    return [_printed(finding) for finding in findings]


def _record(finding: Finding) -> dict[str, str]:
    verdict, _ = _MARKS.get(finding.level, _UNSEEN)
    return {"name": finding.name, "verdict": verdict, "detail": finding.detail, "remedy": finding.remedy}


def _printed(finding: Finding) -> Finding:
    from rich.text import Text  # noqa: PLC0415

    verdict, style = _MARKS.get(finding.level, _UNSEEN)
    line = Text.assemble((f"{verdict:<8}", style), f" {finding.name:<14} {output.shown(finding.detail)}")
    if finding.remedy and finding.level is not Level.OK:
        line.append(f"\n{'':<23} -> {output.visible(finding.remedy)}", style="dim")
    output.stdout().print(line)
    return finding


def leave_by(findings: Iterable[Finding]) -> None:
    """Warnings are advice; a problem makes the command fail."""
    if any(finding.level is Level.BAD for finding in findings):
        raise typer.Exit(1)
