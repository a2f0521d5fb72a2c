"""What one part of a comparison hands back: drift up to its limit, whatever else it met."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from outbox.policy.drift import DriftFinding, DriftReport, Kind
from outbox.reindex import partwise_verify
from outbox.reindex.pacing import JobPace
from outbox.reindex.parts import RebuildPart
from outbox.reindex.partwise_verify import RESULTS, PartCompare

PLACE = {"target": "articles", "index": "articles", "types": ["article"], "routed": False}


@dataclass
class Comparing:
    """Finds what the test gives it, in place of both servers."""

    found: list[DriftFinding]
    report: DriftReport = field(default_factory=DriftReport)
    walked: int = 0

    def __call__(self, sides: Any, pace: Any, report: DriftReport, progress: Any, keep: Any) -> "Comparing":
        self.report, self.keep, self.doubts = report, keep, SimpleNamespace()
        return self

    def entities_of(self, *_: Any) -> None:
        for finding in self.found:
            self.report.found(finding)
            self.keep(finding)


@dataclass
class Parts:
    record: Any = None

    def counts(self, part: RebuildPart, compared: int, drift: int) -> bool:
        return True

    def finish(self, part: RebuildPart, report: Any = None) -> bool:
        self.record = report
        return True


def found(kind: Kind, number: int, *, failed: bool = False) -> list[DriftFinding]:
    return [DriftFinding(kind, "articles", f"{kind}:{n}", None, failed=failed) for n in range(number)]


def test_only_drift_counts_against_the_limit_and_failed_events_count_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    met = [*found(Kind.UNKNOWN, 9), *found(Kind.STALE, 9, failed=True), *found(Kind.ORPHANED, 9)]
    monkeypatch.setattr(partwise_verify, "Comparison", Comparing(met))
    parts, sides = Parts(), SimpleNamespace(routed={})
    compare = PartCompare(parts, lambda: sides, JobPace(0), None, 3, False, lambda: False)  # type: ignore[arg-type, return-value]
    compare(RebuildPart(1, 1, "article", None, None, PLACE, None))
    report, findings = RESULTS.validate_python(parts.record)
    assert [(each.kind, each.failed) for each in findings] == [(Kind.ORPHANED, False)] * 3 + [(Kind.STALE, True)] * 3
    assert report.counts[Kind.UNKNOWN] == 9
