"""Derives the verdict from a record: PASS, FAIL or INCONCLUSIVE, with its reasons. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labs.alerts import fired
from labs.checks import checked, holds
from labs.experiment import CheckResult, Experiment
from labs.record import Record

PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"
# What ends a run before its data is complete: nothing can be concluded from the rest.
CUT_SHORT = {"interrupted", "server_died", "not_here", "no_steady_state", "broken_lab"}


@dataclass(frozen=True, slots=True)
class LabVerdict:
    result: str
    sentence: str
    bit: CheckResult | None
    findings: Sequence[CheckResult]

    @property
    def violated(self) -> list[CheckResult]:
        return [finding for finding in self.findings if not finding.ok]


def judge(record: Record, experiment: Experiment) -> LabVerdict:
    problems = record.about["problems"]
    for problem in problems:
        if problem["kind"] in CUT_SHORT:
            return LabVerdict(INCONCLUSIVE, f"{_said(problem)}.", None, [])
    bit = checked(experiment.bit, record)
    findings = [checked(check, record) for check in experiment.invariants]
    findings += [_as_finding(problem) for problem in problems if problem["kind"] in ("worker_died", "late")]
    findings += _alerts(record, experiment)
    return _decide(record, experiment, bit, findings)


def _decide(record: Record, experiment: Experiment, bit: CheckResult, findings: list[CheckResult]) -> LabVerdict:
    violated = [finding for finding in findings if not finding.ok]
    if violated:
        more = f" (and {len(violated) - 1} more)" if len(violated) > 1 else ""
        first = violated[0]
        text = f"{first.name}: expected {first.expected}; seen {first.observed}{more}."
        return LabVerdict(FAIL, text, bit, [*violated, *(finding for finding in findings if finding.ok)])
    doubts = [_said(problem) for problem in record.about["problems"]]
    if not bit.ok:
        doubts.append(f"the fault had no effect: {bit.name} was {bit.observed}, {bit.expected} was needed")
    if len(record.committed) < experiment.least_events:
        doubts.append(f"too little load: {len(record.committed)} events, {experiment.least_events} were needed")
    if doubts:
        return LabVerdict(INCONCLUSIVE, f"{'; '.join(doubts)}.", bit, findings)
    return LabVerdict(PASS, sentence(record, experiment), bit, findings)


def sentence(record: Record, experiment: Experiment) -> str:
    """The result in numbers."""
    statuses = record.statuses
    text = f"{len(record.committed)} events committed, {statuses['done']} done"
    if statuses["failed"]:
        text += f", {statuses['failed']} failed as expected"
    oldest = max((line.get("oldest", 0.0) for line in record.timeline), default=0.0)
    text += f", 0 lost; the backlog peaked at {record.peak('pending', 'processing')} events and {oldest:.1f} s"
    if record.recovery_seconds is not None:
        text += f", empty {record.recovery_seconds:.1f} s after the fault ended"
    own = experiment.finding(record) if experiment.finding else ""
    return f"{own} {text}." if own else f"{text}."


def _said(problem: dict[str, str]) -> str:
    return f"{problem['message']} (in {problem['phase']})"


def _as_finding(problem: dict[str, str]) -> CheckResult:
    name, expected = {
        "worker_died": ("Daemons stay up", "no daemon exits unexpectedly"),
        "late": ("Recovers in time", "everything that the lab waits for happens in time"),
    }[problem["kind"]]
    return holds(name, expected, _said(problem), False, "record.json, logs/")


def _alerts(record: Record, experiment: Experiment) -> list[CheckResult]:
    """Only if a Prometheus ran: without one alerts are not checked."""
    watched = record.about["alerts"]
    if watched["why_not"] or not experiment.expected_alerts:
        return []
    rang = fired(watched["spans"])
    missing = [name for name in experiment.expected_alerts if name not in rang]
    text = f"fired: {', '.join(sorted(rang)) or 'none'}"
    expected = f"{', '.join(experiment.expected_alerts)} fires"
    return [holds("Alerts", expected, text, not missing, "record.json (alerts)")]
