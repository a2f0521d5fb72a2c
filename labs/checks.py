"""Builds checks: the events that violate a rule, or a limit of a number. The rules are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from labs.experiment import Check, CheckResult
from labs.history import History
from labs.record import Record

H = TypeVar("H", bound=History)


def holds(name: str, expected: str, observed: str, ok: bool, evidence: str) -> CheckResult:
    return CheckResult(name, expected, observed, ok, evidence)


def nobody(name: str, expected: str, observed: str, violators: Sequence[str], evidence: str) -> CheckResult:
    """Holds if no event violates it. The report shows the history of the first violator."""
    return CheckResult(name, expected, observed, not violators, evidence, violators[0] if violators else None)


def checked(check: Callable[[H], CheckResult], history: H) -> CheckResult:
    """A run that was aborted may lack the data of a check: then that check fails, and the others are still
    evaluated."""
    try:
        return check(history)
    except (KeyError, ValueError, IndexError, TypeError) as lacking:
        name = check.__name__.replace("_", " ")
        return holds(name, "data to check", f"not in the record: {lacking!r}", False, history.ABOUT)


def at_least(name: str, what: Callable[[Record], float], least: float, evidence: str, unit: str = "") -> Check:
    def check(record: Record) -> CheckResult:
        seen = what(record)
        return CheckResult(name, f"at least {least:g}{unit}", f"{seen:.6g}{unit}", seen >= least, evidence)

    return _called(f"{name}: at least {least:g}{unit}", check)


def at_most(name: str, what: Callable[[Record], float], most: float, evidence: str, unit: str = "") -> Check:
    def check(record: Record) -> CheckResult:
        seen = what(record)
        return CheckResult(name, f"at most {most:g}{unit}", f"{seen:.6g}{unit}", seen <= most, evidence)

    return _called(f"{name}: at most {most:g}{unit}", check)


def exactly(name: str, what: Callable[[Record], object], expected: object, evidence: str) -> Check:
    def check(record: Record) -> CheckResult:
        seen = what(record)
        return CheckResult(name, str(expected), str(seen), seen == expected, evidence)

    return _called(f"{name}: {expected}", check)


def _called(name: str, check: Check) -> Check:
    """Its name in `labs show`."""
    check.__name__ = name
    return check


def when(text: str) -> float:
    """A time of PostgreSQL or of a log line, in seconds."""
    return datetime.fromisoformat(text).timestamp()


def noted(name: str) -> Callable[[Record], float]:
    """A number that the experiment noted while it ran; 0 if it did not get there."""
    return lambda record: float(record.notes.get(name) or 0)
