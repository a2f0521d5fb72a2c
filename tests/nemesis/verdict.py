"""Owns the verdict over a nemesis's evidence: PASS, FAIL or INCONCLUSIVE, the counts and the bites. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from labs.checks import checked
from labs.experiment import CheckResult
from labs.invariants import double_leases, lost, made_up, resurrected, stale
from labs.verdict import FAIL, INCONCLUSIVE, PASS
from tests.nemesis import joined_documents, neighbours_judge
from tests.nemesis.evidence import Evidence
from tests.nemesis.invariants import CHECKS
from tests.nemesis.joined import REFRESH
from tests.nemesis.lanes import LANES, STORM
from tests.nemesis.neighbours_judge import NeighbourLane

ONCE = frozenset({"rebuild", "move", "partition"})  # no faults: one that came through is enough
CODES = {PASS: 0, FAIL: 1, INCONCLUSIVE: 3}


@dataclass(frozen=True, slots=True)
class Bitten:
    """How often one kind of act was done, and how often it bit, by its own measurement: while all lanes were at work,
    and after it, when the first lane had ended and what had bitten too seldom was tried again."""

    kind: str
    done: int
    in_storm: int
    after_it: int
    least: int
    example: str

    @property
    def bit(self) -> int:
        return self.in_storm + self.after_it


@dataclass(frozen=True, slots=True)
class NemesisVerdict:
    word: str
    why: str
    counts: dict[str, int]
    bitten: list[Bitten]
    findings: list[CheckResult]
    neighbours: NeighbourLane | None = None  # None: a history from before there was this lane, or a run without it
    tables: Sequence[str] = ()  # what a lane shows beside its counts, in Markdown

    @property
    def code(self) -> int:
        return CODES[self.word]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit": self.code}


def least_bites(minutes: float, apart: float = 3) -> int:
    """One in three minutes: two minutes ask for one of each, half an hour for ten. Lanes of long acts say how long."""
    return max(1, int(minutes // apart))


def judge(found: Evidence) -> NemesisVerdict:
    lane = neighbours_judge.judged(found.neighbours, found.innocents) if found.neighbours else None
    if found.about.get("lane") == "neighbours":
        return _of_neighbours(found, lane)
    storm = _of_storm(found)
    if lane is None:
        return storm
    broken = [finding.name for finding in lane.findings if not finding.ok]
    word, why = storm.word, storm.why
    if broken and word != INCONCLUSIVE:
        word, why = FAIL, "; ".join([*([why] if word == FAIL else []), f"broken: {', '.join(broken)}"])
    elif broken:
        why = f"{why}; not held: {', '.join(broken)}"
    elif word == PASS and (doubts := [*lane.doubts, *found.neighbours["problems"]]):
        word, why = INCONCLUSIVE, "; ".join(doubts)
    return replace(storm, word=word, why=why, findings=[*storm.findings, *lane.findings], neighbours=lane)


def _of_neighbours(found: Evidence, lane: NeighbourLane | None) -> NemesisVerdict:
    """Of a run without a storm."""
    if lane is None:
        return NemesisVerdict(INCONCLUSIVE, "no neighbours to check", {}, [], [])
    broken = [finding.name for finding in lane.findings if not finding.ok]
    doubts = [*lane.doubts, *found.neighbours["problems"]]
    if broken:
        return NemesisVerdict(FAIL, f"broken: {', '.join(broken)}", {}, [], lane.findings, lane)
    if doubts:
        return NemesisVerdict(INCONCLUSIVE, "; ".join(doubts), {}, [], lane.findings, lane)
    return NemesisVerdict(PASS, "no innocent was held up and every poison bit", {}, [], lane.findings, lane)


def _of_storm(found: Evidence) -> NemesisVerdict:
    lane = LANES.get(str(found.about.get("lane")), STORM)
    unswapped = [part for part in joined_documents.parts(found) if not found.about[f"{part}_swapped"]]
    told = "no two transactions on a {} document committed in the other order than they wrote"
    counts = {**counted(found, len(lost(found)), len(stale(found))), "double_leases": len(double_leases(found))}
    return decide(
        found,
        [numbered(number, checked(check, found)) for number, check in (*CHECKS, *lane.checks)],
        lane.kinds,
        {"steps": bool(found.steps)},
        counts,
        map(told.format, unswapped),
    )


def decide(
    found: Evidence,
    findings: list[CheckResult],
    all_kinds: Sequence[str],
    there: Mapping[str, bool],
    counts: dict[str, int],
    more_doubts: Iterable[str] = (),
) -> NemesisVerdict:
    """`there`: what this sort of history has beside what all have. Without it nothing follows."""
    bitten = [bitten_by(found, kind) for kind in found.about.get("kinds", all_kinds)]
    broken = [finding.name for finding in findings if not finding.ok]
    if nothing := [name for name, some in {**_there(found), **there}.items() if not some]:
        # Whatever holds on nothing shows nothing, and what is broken there may only be missing.
        why = "; ".join([*(f"no {name} to check" for name in nothing), *(f"not held: {name}" for name in broken)])
        return NemesisVerdict(INCONCLUSIVE, why, counts, bitten, findings)
    if broken:
        return NemesisVerdict(FAIL, f"broken: {', '.join(broken)}", counts, bitten, findings)
    doubts = [f"{one.kind} bit {one.bit} times, {one.least} were needed" for one in bitten if one.bit < one.least]
    if not found.about.get("backlog"):
        doubts.append("nothing was open when it was healed, so no drain was seen")
    doubts += [*more_doubts, *(problem.strip().splitlines()[-1] for problem in found.about["problems"])]
    if doubts:
        return NemesisVerdict(INCONCLUSIVE, "; ".join(doubts), counts, bitten, findings)
    return NemesisVerdict(PASS, "every invariant held and every fault bit", counts, bitten, findings)


def _there(found: Evidence) -> dict[str, bool]:
    return {
        "ledger": bool(found.rows("ledger")),
        "documents": bool(found.documents),
        **{f"{part} documents": bool(of) for part, of in joined_documents.by_part(found).items()},
        "seen": any(line["changed"] for line in found.seen),
        "logs": any(log.stat().st_size for log in found.log_files),
    }


def numbered(number: str, finding: CheckResult) -> CheckResult:
    return replace(finding, name=f"{number} {finding.name}".lstrip())


def bitten_by(found: Evidence, kind: str) -> Bitten:
    acts = [act for act in found.acts if act["kind"] == kind]
    bit = [act for act in acts if act["bit"]]
    late = sum(act["began"] >= found.about.get("storm_ended", math.inf) for act in bit)
    least = 1 if kind in ONCE else least_bites(found.about["minutes"], found.about.get("minutes_apart", 3))
    return Bitten(kind, len(acts), len(bit) - late, late, least, str((bit or acts or [{"told": ""}])[-1]["told"]))


def counted(found: Evidence, lost: int, stale: int) -> dict[str, int]:
    """`lost`, `stale`: events, by the rules of their source."""
    return {
        "attempted": len(found.attempted) + int(found.about["refused_attempts"]),
        "acknowledged": len(found.acknowledged),
        "lost": lost + len(joined_documents.lost(found)),
        "unexpected": sum(map(len, made_up(found))),
        "stale": stale + len(joined_documents.stale(found)),
        "resurrected": len(resurrected(found)) + len(joined_documents.back_again(found)),
        "misplaced": len(joined_documents.misplaced(found)),
        "duplicated": int(found.about["wire_again"]),
        "recovered": len(found.recovered),
        "refreshes": sum(entry.op == REFRESH for entry in found.committed),
        "joined": len(found.joined | found.view.keys()),
    }
