"""Writes report.md: the report as text, with the guide's conclusion filled in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from labs.report.view import View
from labs.snapshots import QUERIES


def markdown(view: View) -> str:
    parts = [_head(view), _conclusion(view), _findings(view), _life(view), _snapshots(view), _steps(view)]
    parts += [_lines(view), _alerts(view), _environment(view)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(view: View) -> str:
    experiment, operator = view.experiment, view.record.about["operator"]
    figures = " · ".join(f"{figure.name.lower()} {figure.value}" for figure in view.figures)
    by = f", run by {operator}" if operator else ""
    return (
        f"# {view.verdict.result}: {experiment.title}\n\n{view.verdict.sentence}\n\n"
        f"`{experiment.name}` on {view.record.server}, {view.began}, {view.record.seconds:.0f} s{by}\n\n{figures}\n\n"
        f"**Story.** {experiment.story}\n\n**Hypothesis.** {experiment.hypothesis}"
    )


def _conclusion(view: View) -> str:
    guide = view.experiment.guide
    where = f" (section {guide.section} of the guide, {guide.level})" if guide else ""
    return f"## Conclusion{where}\n\n" + "\n".join(f"- {name}: {value}" for name, value in view.conclusion)


def _findings(view: View) -> str:
    if not view.verdict.findings:
        return ""
    rows = [("" if f.ok else "**violated**", f.name, f.expected, f.observed, f.evidence) for f in view.verdict.findings]
    bit = view.verdict.bit
    proof = (
        f"\n\nThe fault took effect: {bit.name}, {bit.expected}; seen {bit.observed} ({bit.evidence})." if bit else ""
    )
    return "## What must hold\n\n" + table(("", "invariant", "expected", "observed", "evidence"), rows) + proof


def _life(view: View) -> str:
    if view.life is None:
        return ""
    moments = [(f"{moment.t:.2f} s", moment.what, moment.detail) for moment in view.life.moments]
    text = f"## The first event that violates it\n\nEvent `{view.life.event}` of document `{view.life.document}`.\n\n"
    others = "\n".join(f"- {other}" for other in view.life.others)
    more = f"\n\nOther events of this document:\n\n{others}" if others else ""
    return f"{text}{table(('at', 'what', ''), moments)}\n\n{view.life.end}{more}"


def _snapshots(view: View) -> str:
    parts = ["## The table before, during and after"]
    for name, query in QUERIES.items():
        parts.append(f"### {name}\n\n```sql\n{query}\n```")
        for moment, taken in view.record.about["snapshots"].items():
            seen = taken[name]
            body = table(seen["columns"], seen["rows"]) if seen["rows"] else "(no row)"
            parts.append(f"{moment}, at {taken['t']} s:\n\n{body}")
    return "\n\n".join(parts)


def _steps(view: View) -> str:
    steps = view.record.about["steps"]
    shown = [
        f"```\n$ {' '.join(step['command'])}\n{step['stdout'].strip()[-1200:]}\n(exit {step['exit']})\n```"
        for step in steps
    ]
    return "## Commands\n\n" + "\n\n".join(shown) if shown else ""


def _lines(view: View) -> str:
    parts = ["## Important log lines"]
    for phase, lines in view.lines.items():
        text = [
            f"{line.t:7.1f} s  {line.log}  {line.event}  {line.rest}" + (f"  (x{line.times})" if line.times > 1 else "")
            for line in lines
        ]
        parts.append(f"{phase}:\n\n```\n" + "\n".join(text) + "\n```")
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _alerts(view: View) -> str:
    watched = view.record.about["alerts"]
    if watched["why_not"]:
        names = ", ".join(view.experiment.expected_alerts) or "none"
        return f"## Alerts\n\nExpected: {names}. Not checked: {watched['why_not']}."
    rows = [
        (a.name, "yes" if a.expected else "", f"after {a.first:.0f} s" if a.first is not None else "no")
        for a in view.alerts
    ]
    text = f"A real Prometheus with the shipped rules, {watched['speed']:.0f} times as fast."
    body = table(("alert", "expected", "fired"), rows) if rows else "None expected, none fired."
    return f"## Alerts\n\n{text}\n\n{body}"


def _environment(view: View) -> str:
    facts = "\n".join(f"- {name}: {value}" for name, value in view.environment.items())
    settings = "\n".join(f"{name}={value}" for name, value, _ in view.settings)
    seed = view.record.about["seed"]
    return f"## Environment\n\n{facts}\n- seed: {seed}\n\n```\n{settings}\n```\n\nRepeat it: `{view.command}`"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Iterable[Any]) -> str:
        return (
            "| "
            + " | ".join(str("" if cell is None else cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
            + " |"
        )

    return "\n".join([line(columns), "|" + "---|" * len(columns), *map(line, rows)])
