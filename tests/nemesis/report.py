"""Owns how a verdict is shown to a person, on a terminal or in docs/reliability.md. It decides nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labs.client import server_in
from outbox.policy.product import Product
from tests.nemesis.lanes import LANES
from tests.nemesis.neighbours_judge import NeighbourLane
from tests.nemesis.verdict import NemesisVerdict

MEANING = {
    "attempted": "inserts that were tried",
    "acknowledged": "whose commit was answered",
    "lost": "events committed and not done in the end, and joined documents that are missing",
    "unexpected": "events or documents that nobody wrote",
    "stale": "documents that are not their newest commit, and joined ones that are not what the view says",
    "misplaced": "documents that stand twice, or under another routing than the view says",
    "resurrected": "deleted documents that are there, joined ones included",
    "double_leases": "claims of a row that was held",
    "takeovers": "workers that were killed or asleep while they had partitions, which others took",
    "duplicated": "versions that were sent to one index more than once (and changed nothing)",
    "recovered": "commits without an answer that had happened, and arrived",
    "refreshes": "of the committed events: refreshes of joined documents",
    "joined": "joined documents, there or deleted, compared with the view",
}


def headline(about: dict[str, Any]) -> str:
    kafka = f" Kafka {about['kafka']}," if "kafka" in about else ""
    return (
        f"seed {about['seed']}, {about['minutes']:g} minutes, commit {about['commit']},"
        f" PostgreSQL {about['postgresql']}, {server_in(about)},{kafka} Python {about['python']},"
        f" {about['clock']}"
    )


def quiet(about: dict[str, Any]) -> str:
    windows = about.get("quiet_windows", [])
    return f"quiet windows for verify and rebuild: {len(windows)}, {sum(windows):.0f} s in all"


def neighbours(lane: NeighbourLane) -> str:
    left = f"; left out, because too short for them: {', '.join(lane.left_out)}" if lane.left_out else ""
    return (
        f"neighbours: {lane.workers} daemons, {lane.rate:g} innocents per second, half of {lane.seconds:g} s calm and"
        f" half beside poison{left}"
    )


def text(verdict: NemesisVerdict, about: dict[str, Any]) -> str:
    return f"{headline(about)}\n\n{markdown(verdict, about)}\n\n{verdict.word}: {verdict.why}"


def markdown(verdict: NemesisVerdict, about: dict[str, Any]) -> str:
    """All that a run shows."""
    return "\n".join(
        [
            *(_storm_markdown(verdict, about) if verdict.counts else []),
            *(_poison_markdown(verdict.neighbours) if verdict.neighbours else []),
            *verdict.tables,
            "| invariant | held | seen |",
            "|---|---|---|",
            *(f"| {f.name} | {'yes' if f.ok else '**no**'} | {f.observed} |" for f in verdict.findings),
        ]
    )


def _poison_markdown(lane: NeighbourLane) -> list[str]:
    told = neighbours(lane)
    return [
        f"{told[0].upper()}{told[1:]}.",
        "",
        "| poison | made | bit | what it is | what became of it |",
        "|---|---:|---:|---|---|",
        *(f"| `{one.kind}` | {one.made} | {one.bit} | {one.meant} | {one.states or '-'} |" for one in lane.poisons),
        "",
    ]


def _counts(verdict: NemesisVerdict) -> list[str]:
    rows = (f"| {name.replace('_', ' ')} | {n:,} | {MEANING[name]} |" for name, n in verdict.counts.items())
    return ["| count | | meaning |", "|---|---:|---|", *rows]


def _storm_markdown(verdict: NemesisVerdict, about: dict[str, Any]) -> list[str]:
    return [
        *_counts(verdict),
        "",
        "| fault | done | bit in the storm | after it | the last bite |",
        "|---|---:|---:|---:|---|",
        *(f"| `{one.kind}` | {one.done} | {one.in_storm} | {one.after_it} | {one.example} |" for one in verdict.bitten),
        "",
        f"{quiet(about)[0].upper()}{quiet(about)[1:]}.",
        "",
    ]


# Each product has a record of its own, and so has Kafka. Composed runs have a table of all.
NAMES = {Product.ELASTICSEARCH: "nemesis", Product.OPENSEARCH: "nemesis-opensearch"}
WIDE = "nemesis-wide"


def record_name(about: dict[str, Any]) -> str:
    if _is_wide(about):
        return f"{WIDE}-{about['seed']}"
    if about.get("source") == "kafka":
        return "nemesis-kafka"
    name = NAMES[server_in(about).product]
    return f"{name}-{about['lane']}" if about.get("lane") in (*LANES, "hours") else name


def _is_wide(about: dict[str, Any]) -> bool:
    return str(about.get("recipe", "")).startswith("wide")


def record(page: Path, verdict: NemesisVerdict, about: dict[str, Any], history: Path | None) -> None:
    """Writes the tables between the marks of a page; what stands there is replaced. Of a composed run it is one row."""
    name = WIDE if _is_wide(about) else record_name(about)
    begin, end = f"<!-- {name}: written by scripts/nemesis --record -->", f"<!-- /{name} -->"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    old, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{page} has no place for a record: {begin} ... {end}")
    new = _with_row(old, verdict, about) if _is_wide(about) else _tables(verdict, about, history)
    page.write_text(f"{before}{begin}\n{new}\n{end}{after}", encoding="utf-8")


def _tables(verdict: NemesisVerdict, about: dict[str, Any], history: Path | None) -> str:
    """`--judge` prints all the rest from the archive."""
    where = f" The history, packed by `--archive`: `{history}`." if history else ""
    told = f"**{verdict.word}**: {verdict.why}. `{headline(about)}`, {about['rate']:g} events per second.{where}"
    return "\n".join([told, "", *_counts(verdict), *(["", *verdict.tables[:-1]] if verdict.tables else [])])


WRONG = ("lost", "stale", "resurrected", "misplaced", "double_leases")
HEAD = """
| seed | server | minutes | committed | wrong | verdict | commit | ingredients |
|---:|---|---:|---:|---:|---|---|---|
"""


def _with_row(old: str, verdict: NemesisVerdict, about: dict[str, Any]) -> str:
    """In the order of the seeds; a run of the same seed on the same server is replaced."""
    kafka = f", Kafka {about['kafka']}" if "kafka" in about else ""
    key = f"| {about['seed']} | {server_in(about)}{kafka} |"
    wrong = sum(verdict.counts[name] for name in WRONG)
    cells = (
        f"{about['minutes']:g}",
        f"{verdict.counts['acknowledged']:,}",
        str(wrong),
        _shortly(verdict),
        about["commit"],
    )
    rows = [line for line in old.splitlines() if line[:3] not in ("| s", "|--", "") and not line.startswith(key)]
    rows.append(f"{key} {' | '.join(cells)} | {', '.join(about['ingredients'])} |")
    return HEAD.strip() + "\n" + "\n".join(sorted(rows, key=lambda row: (int(row.split("|")[1]), row)))


def _shortly(verdict: NemesisVerdict) -> str:
    return verdict.word if verdict.word == "PASS" else f"{verdict.word}: {verdict.why}"
