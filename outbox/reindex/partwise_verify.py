"""A comparison in parts: ranges of keys, then slices of the index, by several processes. One result, as by one.

A part keeps its own doubts and settles them at its end, so memory is bounded by a part. What it found comes back as a
record in the table of parts. A part that was killed is compared again from its beginning: it has written nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import TypeAdapter

from outbox.policy.drift import DRIFT, DriftFinding, DriftReport
from outbox.reindex.comparison import ComparedTarget, Comparison, Progress
from outbox.reindex.document_pairs import DocumentPairs
from outbox.reindex.pacing import JobPace
from outbox.reindex.parallel import Parallel, PartJob
from outbox.reindex.part_work import PartLost, PartStopped
from outbox.reindex.parts import PartsProgress, PlannedPart, RebuildPart, Work, WorkKind, planned
from outbox.reindex.verify import Enough, VerifyOptions

if TYPE_CHECKING:
    from outbox.reindex.part_table import PostgresParts

COUNT_SECONDS: Final = 1.0
SLICES_PER_PROCESS: Final = 4


class PartResult(NamedTuple):
    """What one part found, for the process that adds all parts up. It crosses as JSON."""

    report: DriftReport
    findings: list[DriftFinding]


RESULTS: Final = TypeAdapter(PartResult)


@dataclass(slots=True)
class PartwiseVerify:
    """Who plans and adds up. `replica`: entities may be read from a replica."""

    parallel: Parallel
    replica: bool

    def run(self, id: int, wish: VerifyOptions, comparing: Comparison, targets: Sequence[ComparedTarget]) -> None:
        """Entities first, so that what they miss is known before the index is read for what is too much."""
        work, at_once = Work(WorkKind.VERIFICATION, id), self.parallel.at_once(_documents(targets), wish.rate)
        options = {"entity_type": wish.entity_type, "keep": wish.keep, "enough": wish.enough, "replica": self.replica}
        job = PartJob(work.kind.value, id, wish.rate, at_once, wish.by, options)
        adding = _Adding(self.parallel, work, comparing, _documents(targets))
        try:
            self._entities(work, targets, comparing.sides, at_once)
            self.parallel.run(work, job, adding.following("entities"))
            self._documents(work, targets, comparing.sides, job, at_once, adding)
        finally:
            self.parallel.table_of(work).clear()

    def _entities(self, work: Work, targets: Sequence[ComparedTarget], sides: DocumentPairs, at_once: int) -> None:
        parts: list[PlannedPart] = []
        for target in targets:
            place = _place(target, sides)
            ranges = self.parallel.ranges(target.types, at_once)
            parts += [part._replace(place=place) for part in planned(ranges, first=len(parts) + 1)]
        self.parallel.table_of(work).plan(parts)

    def _documents(
        self,
        work: Work,
        targets: Sequence[ComparedTarget],
        sides: DocumentPairs,
        job: PartJob,
        at_once: int,
        adding: _Adding,
    ) -> None:
        """Target by target: a point in time that waits for its turn is closed by the server after some minutes."""
        table, follow = self.parallel.table_of(work), adding.following("documents")
        for target in targets:
            sides.documents.refresh(target.index)
            slices = sides.documents.open_slices(target.index, at_once * SLICES_PER_PROCESS if at_once > 1 else 1)
            try:
                first, place = 1 + table.progress().parts, _place(target, sides)
                table.plan(
                    [PlannedPart(first + n, None, place={**place, "slice": each}) for n, each in enumerate(slices)]
                )
                self.parallel.run(work, job, follow)
            finally:
                sides.documents.close_slices(slices)


def _documents(targets: Sequence[ComparedTarget]) -> int:
    return sum(target.estimate for target in targets)


def _place(target: ComparedTarget, sides: DocumentPairs) -> dict[str, Any]:
    routed = sides.routed.get(target.index, False)
    return {"target": target.name, "index": target.index, "types": list(target.types), "routed": routed}


@dataclass(slots=True)
class _Adding:
    """Adds finished parts to the one report, and passes their findings on."""

    parallel: Parallel
    work: Work
    comparing: Comparison
    estimate: int
    _read: list[int] = field(default_factory=list)

    def following(self, phase: str) -> Callable[[PartsProgress], None]:
        before = self.parallel.table_of(self.work).progress().done

        def follow(now: PartsProgress) -> None:
            self._add()
            done, drift = now.done - before, max(self.comparing.report.drift, now.refused)
            self.comparing.on_progress(Progress(phase, done, max(self.estimate, done), drift, now.remark))

        return follow

    def _add(self) -> None:
        while records := self.parallel.table_of(self.work).reports(self._read):
            for number, record in records:
                self._read.append(number)
                result = RESULTS.validate_python(record)
                self.comparing.report.add(result.report)
                for finding in result.findings:
                    self.comparing.on_finding(finding)


@dataclass(slots=True)
class PartCompare:
    parts: PostgresParts
    sides: Callable[[], DocumentPairs]
    pace: JobPace
    entity_type: str | None
    keep: int
    enough: bool
    stopped: Callable[[], bool]
    _next: float = 0.0

    def __call__(self, part: RebuildPart) -> None:
        report, sides = DriftReport(), self.sides()
        # Those with a failed event are counted apart: whoever repairs leaves them alone, and waits for the others.
        kept: dict[bool, list[DriftFinding]] = {False: [], True: []}
        place = part.place or {}
        target = ComparedTarget(place["target"], place["index"], tuple(place["types"]), 0)
        sides.routed[target.index] = place["routed"]

        def keep(finding: DriftFinding) -> None:
            if finding.kind in DRIFT and len(kept[finding.failed]) < self.keep:
                kept[finding.failed].append(finding)
            elif finding.kind in DRIFT and self.enough and not finding.failed:
                raise Enough

        def progress(now: Progress) -> None:
            self._count(part, now)

        comparing = Comparison(sides, self.pace, report, progress, keep)
        comparing.doubts.rest = self._rest
        with suppress(Enough):
            if part.entity_type is None:
                comparing.documents_of(target, place["slice"], self.entity_type)
            else:
                comparing.entities_of(target, part.entity_type, part.low, part.high)
        record = RESULTS.dump_python(PartResult(report, kept[False] + kept[True]), mode="json")
        if not self.parts.counts(part, comparing.walked, report.drift) or not self.parts.finish(part, record):
            raise PartLost

    def _count(self, part: RebuildPart, now: Progress) -> None:
        self._check()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + COUNT_SECONDS
            if not self.parts.counts(part, now.done, now.drift):
                raise PartLost

    def _rest(self, seconds: float) -> None:
        self._check()
        time.sleep(seconds)

    def _check(self) -> None:
        if self.stopped():
            raise PartStopped
