"""`outbox verify`: compares, keeps the result and says it in a sentence. What differs is found in `comparison`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from outbox.errors import OutboxError, UsageError
from outbox.policy.drift import DRIFT, DriftFinding, DriftReport, Kind
from outbox.reindex.comparison import ComparedTarget, Comparison, Progress
from outbox.reindex.document_pairs import DocumentPairs
from outbox.reindex.pacing import JobPace

if TYPE_CHECKING:
    from outbox.reindex.partwise_verify import PartwiseVerify
    from outbox.reindex.tables import PostgresVerifications

DEFAULT_RATE: Final = 2_000.0
MOST_SAMPLE: Final = 10_000
KEEP_EVERY_SECONDS: Final = 2.0
Row = Mapping[str, Any]


class Enough(Exception):
    """Raised by whoever takes findings and wants no more."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What is to be compared. `index` takes the place of the one target; `rebuild` marks a rebuild's own comparison."""

    entity_type: str | None = None
    sample: int | None = None
    rate: float = DEFAULT_RATE
    target: str | None = None
    index: str | None = None
    by: str = ""
    rebuild: int | None = None
    keep: int = 0  # of the findings of each part, where whoever asks wants more than the first hundred of each kind
    enough: bool = False  # a part ends when it has found so many


@dataclass(frozen=True, slots=True)
class Verification:
    id: int
    report: DriftReport
    targets: Sequence[ComparedTarget]
    seconds: float
    cut: bool = False  # it ended before everything was compared, because enough was found

    @property
    def sentence(self) -> str:
        return sentence(self.report, self.targets, self.seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "sentence": self.sentence,
            "targets": [target.index for target in self.targets],
            "compared": self.report.compared,
            "drift": self.report.drift,
            **{kind.value: number for kind, number in self.report.counts.items()},
            "seconds": round(self.seconds, 3),
            **self.report.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Verify:
    sides: Callable[[], DocumentPairs]
    log: PostgresVerifications
    targets: Sequence[str]
    in_parts: PartwiseVerify

    def run(
        self,
        wish: VerifyOptions,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_finding: Callable[[DriftFinding], None] = lambda _: None,
    ) -> Verification:
        """Compares; keeps the result whatever happens. Raises the house's errors where a side cannot be read."""
        _check_options(wish, self.targets)
        started = time.monotonic()
        report = DriftReport()
        sides = self.sides()
        if sides.remark:
            report.note(sides.remark)
        comparing = Comparison(sides, JobPace(wish.rate, sides.decisive.backlog_waits), report, on_finding=on_finding)
        names = [wish.target] if wish.target else list(self.targets)
        targets = [comparing.target(name, wish.index or name, wish.entity_type) for name in names]
        for kind in comparing.sides.source.out_of_sight():
            report.note(f"{kind} is kept by payloads: `outbox migrate --by-entity` lets its documents be compared")
        id = self.log.begin(
            started_by=wish.by or None,
            target=", ".join(target.index for target in targets),
            entity_type=wish.entity_type,
            sample=wish.sample,
            rebuild_id=wish.rebuild,
            estimate=sum(target.estimate for target in targets),
        )
        comparing.on_progress = _Keeping(self.log, id, report, on_progress)
        cut = self._walk(comparing, targets, wish, id)
        return Verification(id, report, targets, time.monotonic() - started, cut)

    def _walk(self, comparing: Comparison, targets: Sequence[ComparedTarget], wish: VerifyOptions, id: int) -> bool:
        """True: whoever takes the findings wanted no more."""
        try:
            self._compare(comparing, targets, wish, id)
        except Enough:
            self.log.counts(id, comparing.report, "cancelled", "enough was found")
            return True
        except OutboxError as error:
            self.log.counts(id, comparing.report, "failed", error.message)
            raise
        except BaseException as ended:
            self.log.counts(id, comparing.report, "cancelled", type(ended).__name__)
            raise
        self.log.counts(id, comparing.report, "finished")
        return False

    def _compare(self, comparing: Comparison, targets: Sequence[ComparedTarget], wish: VerifyOptions, id: int) -> None:
        if wish.sample is None:
            self.in_parts.run(id, wish, comparing, targets)
            return
        for target in targets:
            comparing.sample_of(target, wish.sample)


@dataclass(slots=True)
class _Keeping:
    """Passes progress on, and keeps it every two seconds for readers elsewhere."""

    log: PostgresVerifications
    id: int
    report: DriftReport
    on_progress: Callable[[Progress], None]
    _next: float = 0.0

    def __call__(self, progress: Progress) -> None:
        self.on_progress(progress)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + KEEP_EVERY_SECONDS
            self.log.counts(self.id, self.report)


def _check_options(wish: VerifyOptions, targets: Sequence[str]) -> None:
    if wish.sample is not None and not 1 <= wish.sample <= MOST_SAMPLE:
        raise UsageError(f"--sample must be from 1 to {MOST_SAMPLE:,}; leave it out to compare everything")
    if wish.rate < 0:
        raise UsageError("--rate must be 0 (no limit) or more documents per second")
    if wish.target is not None and wish.target not in targets:
        raise UsageError(f"--target must be one of {', '.join(targets)}")
    if wish.index is not None and wish.target is None and len(targets) > 1:
        raise UsageError("with several targets --index needs --target, whose entity types are compared")


def sentence(report: DriftReport, targets: Sequence[ComparedTarget], seconds: float) -> str:
    """What a person reads first: the verdict, and what most likely lies behind it."""
    names = ", ".join(target.index for target in targets)
    found = ", ".join(f"{report.counts[kind]:,} {kind}" for kind in DRIFT if report.counts[kind])
    verdict = (
        f"{report.drift:,} documents of {names} are not as they should be ({found})"
        if found
        else (f"No drift in {names}")
    )
    parts = [f"{verdict}; {report.compared:,} entities compared in {seconds:.0f} s", *_remarks(report, targets)]
    return " ".join(part if part.endswith("?") else f"{part}." for part in parts)


def _remarks(report: DriftReport, targets: Sequence[ComparedTarget]) -> list[str]:
    suspicion = _suspicion(report, sum(target.estimate for target in targets))
    counted = (
        (report.counts[Kind.UNKNOWN], "documents are unknown to PostgreSQL and are left alone"),
        (report.failed, "of them have a failed event: fix the cause, then `outbox replay`"),
        (report.unreadable, "entities could not be read"),
        (report.in_flux, "documents kept changing or wait in the queue: `outbox wait --caught-up` first"),
        (report.without_source, "documents keep no source, so only their versions were compared"),
    )
    return [*suspicion, *(f"{n:,} {text}" for n, text in counted if n), *report.notes]


def _suspicion(report: DriftReport, held: int) -> list[str]:
    """A mistake about the index shows as drift everywhere: then say the mistake."""
    if report.compared and report.counts[Kind.MISSING] == report.compared and held:
        return ["None of the entities is in this index, which holds other documents: is it the right one?"]
    if report.counts[Kind.DIFFERENT] > max(10, report.compared // 2) and report.fields:
        most = max(report.fields, key=lambda name: report.fields[name])
        return [f"Most differ, often in `{most}`: another program, an ingest pipeline or another mapping is at work"]
    return []
