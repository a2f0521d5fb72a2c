"""`outbox repair`: compares, then writes events for what differs and for nothing else. The daemons send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID, uuid4

from outbox.errors import Conflict, UsageError
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.drift import DRIFT, DriftFinding, HeldDocument, Key, Kind, Truth, is_elsewhere
from outbox.policy.repair_event import RepairEvent, refresh, repair_event, too_many_deletes
from outbox.reindex.comparison import Progress
from outbox.reindex.document_pairs import DocumentPairs
from outbox.reindex.held_places import HeldPlaces
from outbox.reindex.pacing import JobPace
from outbox.reindex.verify import Enough, Verification, Verify, VerifyOptions

DEFAULT_LIMIT: Final = 10_000
MOST: Final = 100_000
DEFAULT_RATE: Final = 500.0
A_STEP: Final = 100  # documents held in memory at once


class ManyDeletes(Conflict):
    """Unusually many documents would be deleted, which suggests the wrong index or an incomplete view. See
    `outbox verify`; if that is intended, give their number with --expect-deletes N. Nothing was written."""


Tombstones = Callable[[str, Sequence[tuple[str, str | None]]], Sequence[int | None]]
"""The versions that an index remembers of these (id, routing)."""
WriteEvents = Callable[[UUID, int, Sequence[RepairEvent], Entry], int]
"""Of a batch, from this number on; how many were written."""


@dataclass(slots=True)
class RepairPlan:
    """What would be repaired. `cut`: there is more than the limit."""

    verification: Verification
    findings: list[DriftFinding] = field(default_factory=list)
    failed: int = 0
    cut: bool = False

    @property
    def by_kind(self) -> dict[str, int]:
        return {kind.value: sum(f.kind is kind for f in self.findings) for kind in DRIFT}


@dataclass(slots=True)
class Repaired:
    batch: UUID
    written: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    right_by_now: int = 0

    def count(self, events: Sequence[RepairEvent], written: int) -> None:
        self.written += written
        for each in events:
            self.by_kind[each.kind] = self.by_kind.get(each.kind, 0) + 1


@dataclass(frozen=True, slots=True)
class Repair:
    verify: Verify
    sides: Callable[[], DocumentPairs]
    tombstones: Tombstones
    places: HeldPlaces
    write_events: WriteEvents

    def plan(
        self, wish: VerifyOptions, limit: int, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> RepairPlan:
        """Compares until the limit is reached. A document whose newest event failed is left to a replay."""
        if not 1 <= limit <= MOST:
            raise UsageError(f"--limit must be from 1 to {MOST:,}")
        findings: list[DriftFinding] = []

        def keep(finding: DriftFinding) -> None:
            if finding.kind in DRIFT and not finding.failed:
                if len(findings) == limit:
                    raise Enough
                findings.append(finding)

        verification = self.verify.run(replace(wish, keep=limit + 1, enough=True), on_progress, keep)
        return RepairPlan(verification, findings, verification.report.failed, cut=verification.cut)

    def write(
        self,
        plan: RepairPlan,
        actor: Actor,
        reason: str,
        *,
        rate: float = DEFAULT_RATE,
        expect_deletes: int | None = None,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> Repaired:
        """Each step is one transaction with its audit row; both sides are read once more right before it."""
        if too_many_deletes(plan.findings, plan.verification.report.compared, expect_deletes):
            raise ManyDeletes(f"{plan.by_kind[Kind.ORPHANED]:,} of {plan.verification.report.compared:,} compared")
        repaired, pace, sides = Repaired(uuid4()), JobPace(rate), self.sides()
        for done, step in enumerate(_steps(plan.findings), 1):
            events = self._repairs(step[0].index, step, sides, actor)
            repaired.right_by_now += len(step) - len(events)
            if events:
                entry = _entry(repaired.batch, actor, reason, step[0].index, events)
                repaired.count(events, self.write_events(repaired.batch, repaired.written, events, entry))
                pace.took(len(events))
            on_progress(min(done * A_STEP, len(plan.findings)), len(plan.findings))
        return repaired

    def _repairs(
        self, index: str, step: Sequence[DriftFinding], sides: DocumentPairs, actor: Actor
    ) -> list[RepairEvent]:
        """The events to be written. Where the view says a routing, other places are noted before: the refresh removes
        what is there."""
        if index not in sides.routed:
            sides.prepare(index)
        extra = {f.key: f for f in step if f.key is not None and f.kind is Kind.ORPHANED}
        keys = [f.key for f in step if f.key is not None]
        now = {truth.key: (truth, held) for truth, held in sides.both(index, keys)}
        gone = self._gone(index, now, sides)
        elsewhere = [(key, held) for key, (truth, found) in now.items() for held in found if is_elsewhere(truth, held)]
        self.places.note(index, elsewhere, actor)
        made = []
        for key, (truth, found) in now.items():
            one, held = _one_of(truth, found, extra.get(key))
            if sides.source.kept_by_view(key.entity_type):
                made.append(refresh(one, held, gone=truth.text is None))
            else:
                made.append(repair_event(one, held, gone.get(key)))
        return [event for event in made if event is not None]

    def _gone(
        self, index: str, now: Mapping[Key, tuple[Truth, Sequence[HeldDocument]]], sides: DocumentPairs
    ) -> Mapping[Key, int]:
        """What Elasticsearch remembers of missing documents; a version that is drawn is above it anyway."""
        missing = [
            truth
            for truth, held in now.values()
            if truth.text is not None and not held and not sides.source.kept_by_view(truth.key.entity_type)
        ]
        found = self.tombstones(index, [(sides.naming.id_of(truth.key), truth.routing) for truth in missing])
        return {truth.key: version for truth, version in zip(missing, found, strict=True) if version is not None}


def _one_of(
    truth: Truth, found: Sequence[HeldDocument], finding: DriftFinding | None
) -> tuple[Truth, HeldDocument | None]:
    """A second document under the same id is the one that goes; the entity itself stays."""
    if finding is not None and truth.text is not None:
        return Truth(truth.key), next((held for held in found[1:] if held.routing == finding.routing), None)
    return truth, found[0] if found else None


def _steps(findings: Sequence[DriftFinding]) -> Iterator[Sequence[DriftFinding]]:
    for index in dict.fromkeys(finding.index for finding in findings):
        own = [finding for finding in findings if finding.index == index]
        for start in range(0, len(own), A_STEP):
            yield own[start : start + A_STEP]


def _entry(batch: UUID, actor: Actor, reason: str, index: str, events: Sequence[RepairEvent]) -> Entry:
    detail: dict[str, Any] = {
        "index": index,
        "events": len(events),
        "by_kind": {kind.value: n for kind in DRIFT if (n := sum(m.kind is kind for m in events))},
        "first": [f"{m.key.entity_type}:{m.key.entity_id}" for m in events[:20]],
    }
    return Entry(Action.REPAIR_SUMMARY, actor, reason, batch_id=batch, detail=detail)
