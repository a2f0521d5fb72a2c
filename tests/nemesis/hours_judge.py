"""Judges the hours: whether each figure stayed flat, and, slice by slice, the history, whose length costs no memory."""

from __future__ import annotations

import gzip
import json
import math
import resource
import shutil
import tempfile
import uuid
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from labs.checks import checked, holds
from labs.collect import write
from labs.experiment import CheckResult
from labs.invariants import double_leases, lost, stale
from labs.verdict import FAIL, INCONCLUSIVE, PASS
from tests.nemesis import agreement
from tests.nemesis.agreement import SecondOpinion
from tests.nemesis.archive import STEPS
from tests.nemesis.evidence import Evidence
from tests.nemesis.invariants import CHECKS, nobody_elses
from tests.nemesis.verdict import NemesisVerdict, bitten_by, counted, numbered

LANE = "hours"
Row = dict[str, Any]

# How flat: the medians of the first and the last quarter of what is judged.
FROM_MINUTE, FROM_SHARE = 40, 0.4
FEWEST_MINUTES = 4
MOST_CHANGE = 0.05
# What is so small that a twentieth of it is noise, by the end of a figure's name.
FLOORS = {"MB": 1.0, "files": 1.0, "rows": 5_000.0, "open": 250.0, "s": 1.0}
LEAST_RATE = 0.9  # of the load that was asked for; while PostgreSQL is down there is none

# The history in slices: a document with all of its events. An event's slice stands in its id.
SLICES = 256
COLUMNS = ("n", *STEPS)
# What is judged in each slice. The others need the whole run: metrics, logs, commands, samples, batches.
WHOLE = (
    *("verified", "it_drains", "audit_is_complete", "no_document_in_logs", "nothing_secret_in_replies"),
    *("resources_are_bounded", "clean_exits", "no_command_crashes"),
)
NEITHER = ("counters_are_true", "neighbours_of_the_bad", nobody_elses.__name__)  # no calm, no bad document, no proxy
OF_SLICES = [(number, check) for number, check in CHECKS if check.__name__ not in (*WHOLE, *NEITHER)]
OF_THE_WHOLE = [(number, check) for number, check in CHECKS if check.__name__ in WHOLE]


def slice_of(document: str) -> int:
    return zlib.crc32(document.encode()) % SLICES


def slice_of_event(event: str) -> int:
    return uuid.UUID(event).int % SLICES


def ledger_in(folder: Path, number: int) -> Path:
    return folder / "history" / f"ledger-{number:03}.ndjson"


def steps_in(folder: Path, number: int) -> Path:
    return folder / "history" / f"steps-{number:03}.ndjson.gz"


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure: its medians over the first and the last quarter of the minutes that are judged, and over all."""

    name: str
    first: float
    last: float
    level: float

    @property
    def flat(self) -> bool:
        return abs(self.last - self.first) <= max(MOST_CHANGE * self.level, FLOORS[self.name.split()[-1]])

    def as_check(self) -> CheckResult:
        share = (self.last - self.first) / self.level if self.level else 0.0
        told = f"{self.level:,.1f}; from {self.first:,.1f} to {self.last:,.1f} ({share:+.1%})"
        return holds(f"Flat: {self.name}", f"within {MOST_CHANGE:.0%}", told, self.flat, "samples.ndjson")


def judged_minutes(samples: Sequence[Row]) -> list[Row]:
    begin = min(FROM_MINUTE, FROM_SHARE * samples[-1]["minute"]) if samples else 0
    return [sample for sample in samples if sample["minute"] > begin]


def trends(samples: Sequence[Row]) -> list[Trend]:
    part = judged_minutes(samples)
    found: dict[str, list[float]] = defaultdict(list)
    for sample in part:
        for name, value in sample["series"].items():
            found[name].append(value)
    return [
        Trend(name, median(values[:quarter]), median(values[-quarter:]), median(values))
        for name, values in sorted(found.items())
        if (quarter := max(1, len(values) // 4))
    ]


@dataclass(frozen=True, slots=True)
class HoursVerdict(NemesisVerdict):
    samples: Sequence[Row] = ()
    megabytes: int = 0  # that judging took at most


def is_of_hours(folder: Path) -> bool:
    return bool(json.loads((folder / "about.json").read_text(encoding="utf-8")).get("lane") == LANE)


def judged(folder: Path) -> tuple[Evidence, HoursVerdict, SecondOpinion]:
    whole = Evidence(folder)
    samples = whole.rows("samples")
    in_slices: list[list[CheckResult]] = []
    opinions: list[SecondOpinion] = []
    counts: Counter[str] = Counter()
    for found in slices(whole):
        in_slices.append([numbered(number, checked(check, found)) for number, check in OF_SLICES])
        opinions.append(agreement.ask(found, NemesisVerdict("", "", {}, [], in_slices[-1])))
        counts.update(
            {**counted(found, len(lost(found)), len(stale(found))), "double_leases": len(double_leases(found))}
        )
    del counts["duplicated"], counts["refreshes"], counts["joined"]  # no proxy counts, and there is no view
    counts["attempted"] += int(whole.about["refused_attempts"])
    findings = [
        *_merged(in_slices),
        *(numbered(number, checked(check, whole)) for number, check in OF_THE_WHOLE),
        numbered("H1", _kept_up(whole, counts["acknowledged"])),
        *(numbered("H2", trend.as_check()) for trend in trends(samples)),
    ]
    bitten = [bitten_by(whole, kind) for kind in whole.about["kinds"]]
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    word, why = _word(whole, samples, findings, bool(counts["acknowledged"]))
    verdict = HoursVerdict(
        word, why, dict(counts), bitten, findings, tables=_table(samples), samples=samples, megabytes=megabytes
    )
    return whole, verdict, _in_one(opinions)


def _word(whole: Evidence, samples: Sequence[Row], findings: Iterable[CheckResult], some: bool) -> tuple[str, str]:
    broken = [finding.name for finding in findings if not finding.ok]
    if not some:
        return INCONCLUSIVE, "no ledger to check"
    if broken:
        return FAIL, f"broken: {', '.join(broken)}"
    doubts = [problem.strip().splitlines()[-1] for problem in whole.about["problems"]]
    if not any(act["kind"] == "kill_9" and act["bit"] for act in whole.acts):
        doubts.append("no worker was killed with rows held")
    if len(judged_minutes(samples)) < FEWEST_MINUTES:
        doubts.append("too short to say what is flat")
    return (INCONCLUSIVE, "; ".join(doubts)) if doubts else (PASS, "every invariant held and every figure was flat")


def _kept_up(whole: Evidence, committed: int) -> CheckResult:
    """Of a slower load the figures would say little."""
    rate, wanted = committed / (whole.about["minutes"] * 60), float(whole.about["rate"])
    told = f"{rate:.0f} commits per second of {wanted:g}"
    return holds("Load", f"at least {LEAST_RATE:.0%} of what was asked", told, rate >= LEAST_RATE * wanted, "history/")


def _merged(in_slices: Sequence[Sequence[CheckResult]]) -> Iterator[CheckResult]:
    for same in zip(*in_slices, strict=True):
        wrong = [one for one in same if not one.ok]
        first = wrong[0] if wrong else same[0]
        told = f"{len(same) - len(wrong)} of {len(same)} slices; {'wrong' if wrong else 'the first'}: {first.observed}"
        yield replace(first, observed=told)


def _in_one(opinions: Sequence[SecondOpinion]) -> SecondOpinion:
    def named(rules: Callable[[SecondOpinion], list[str]]) -> list[str]:
        return [f"{rule} in slice {number}" for number, one in enumerate(opinions) for rule in rules(one)]

    return SecondOpinion(
        named(lambda one: one.first), named(lambda one: one.second), [t for o in opinions for t in o.told]
    )


def slices(whole: Evidence) -> Iterator[Evidence]:
    """One after the other: each is the history of a small run. An archive has none: it would be half a gigabyte."""
    if not (whole.folder / "history").is_dir():
        return
    about = {"max_attempts": whole.about["max_attempts"], "looks": whole.about["looks"]}
    about |= {"source": "table", "refused_attempts": 0, "wire_again": 0, "kinds": whole.about["kinds"]}
    rows = {
        "events": _grouped(whole.rows("events"), lambda row: slice_of_event(row["id"])),
        "documents": _grouped(whole.rows("documents"), lambda row: slice_of(row["_id"])),
        "standing": _grouped(whole.rows("standing"), lambda row: slice_of(row["_id"])),
        "owed": _grouped(whole.rows("owed"), lambda row: slice_of_event(row["id"])),
        "leases": {0: whole.rows("leases")},
    }
    for number in range(SLICES):
        with tempfile.TemporaryDirectory(prefix="slice-", dir=whole.folder) as name:
            folder = Path(name)
            (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
            for kind, of in rows.items():
                write(folder / f"{kind}.ndjson", of.get(number, []))
            write(folder / "seen.ndjson", _seen(whole.seen, number))
            shutil.copyfile(ledger_in(whole.folder, number), folder / "ledger.ndjson")
            _write_steps(folder / "steps.ndjson", steps_in(whole.folder, number))
            yield Evidence(folder)


def _seen(lines: Iterable[Row], number: int) -> Iterator[Row]:
    for line in lines:
        yield {**line, "changed": {name: v for name, v in line["changed"].items() if slice_of(name) == number}}


def _write_steps(target: Path, packed: Path) -> None:
    """In their order, each once: a step is taken again where the answer to its removal was lost."""
    steps: dict[int, bytes] = {}
    if packed.exists():
        with gzip.open(packed) as lines:
            steps = {int(line[1 : line.index(b",")]): line for line in lines}
    with target.open("wb") as file:
        file.write(json.dumps(COLUMNS).encode() + b"\n")
        file.writelines(steps[n] for n in sorted(steps))


def _grouped(rows: Iterable[Row], key: Callable[[Row], int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def _table(samples: Sequence[Row]) -> list[str]:
    """A dozen of the minutes; all of them are in samples.ndjson and in the verdict."""
    if not samples:
        return []
    names = sorted({name for sample in samples for name in sample["series"]})
    some = [samples[round(place * (len(samples) - 1) / 11)] for place in range(12)] if len(samples) > 12 else samples
    figures = ([one["series"].get(name, math.nan) for name in names] for one in some)
    return [
        f"| minute | {' | '.join(names)} |",
        f"|---:|{'---:|' * len(names)}",
        *(
            f"| {one['minute']:.0f} | {' | '.join(format(value, ',.1f') for value in values)} |"
            for one, values in zip(some, figures, strict=True)
        ),
        "",
    ]
