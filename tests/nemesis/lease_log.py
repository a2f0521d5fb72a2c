"""Owns I6 to I9: what the log of steps says about leases, fences, legal steps and attempts. Pure."""

from __future__ import annotations

from typing import Any

from labs.checks import nobody
from labs.experiment import Finding
from labs.invariants import LEGAL
from tests.nemesis.evidence import Evidence

MOST_ABANDONED = 6  # the sixth time a row is called a crash suspect
RECLAIMER = "outbox-chores"


def double_leases(found: Evidence) -> list[str]:
    """A claim of a row that somebody holds. A row's steps are logged under its lock, so their order is the truth."""
    return [
        step["event_id"]
        for step in found.steps
        if step["new_status"] == "processing"
        and (step["old_status"] != "pending" or step["old_token"] == step["new_token"])
    ]


def one_lease(found: Evidence) -> Finding:
    claims = sum(step["new_status"] == "processing" for step in found.steps)
    double = double_leases(found)
    told = f"{claims} claims, {len(double)} of a row that was held"
    return nobody("I6 single live lease", "only pending rows are claimed", told, double, "steps")


def fenced(found: Evidence) -> Finding:
    """A lane moves only what it has claimed itself; the reclaimer moves only what has run out."""
    holder = {step["new_token"]: step["who"] for step in found.steps if step["new_status"] == "processing"}
    exits = [step for step in found.steps if step["old_status"] == "processing" and step["new_status"]]
    wrong = [step["event_id"] for step in exits if _is_foreign(step, holder)]
    back = sum(step["app"] == RECLAIMER for step in exits)
    lost = sum(int(fact.get("counts", {}).get("lost", 0)) for fact in found.said("lease.lost"))
    told = f"{len(exits)} rows let out, {back} of them taken back after their lease, {len(wrong)} by another than its"
    told += f" holder; {lost} late settles changed nothing"
    return nobody("I7 fence", "only the holder, or the reclaimer after the lease", told, wrong, "steps, logs")


def _is_foreign(step: dict[str, Any], holder: dict[str, str]) -> bool:
    if step["app"] == RECLAIMER or step["who"] == "people":  # verify and rebuild take back what has run out, too
        return float(step["lease_left"] or 0) > 0
    return bool(holder.get(step["old_token"]) != step["who"])


def legal_steps(found: Evidence) -> Finding:
    wrong = [step["event_id"] for step in found.steps if not _is_legal(step)]
    told = f"{len(found.steps)} steps, {len(wrong)} forbidden"
    return nobody("I8 legal steps", "the state machine's arrows and no others", told, wrong, "steps")


def _is_legal(step: dict[str, Any]) -> bool:
    if step["new_status"] is None:
        return step["old_status"] in ("done", "discarded")
    if (step["old_status"], step["new_status"]) == ("failed", "pending"):
        return bool(step["attempts"] == 0 and step["replays"] > 0)
    return (step["old_status"], step["new_status"]) in LEGAL


def attempts_are_bounded(found: Evidence) -> Finding:
    limit = int(found.about["max_attempts"])
    most = max((step["attempts"] or 0 for step in found.steps), default=0)
    abandoned = max((step["abandoned"] or 0 for step in found.steps), default=0)
    wrong = [
        step["event_id"]
        for step in found.steps
        if (step["new_status"] == "pending" and (step["attempts"] or 0) >= limit)
        or (step["abandoned"] or 0) > MOST_ABANDONED
        or ((step["abandoned"] or 0) == MOST_ABANDONED and step["new_status"] == "pending")
    ]
    told = f"{most} attempts and {abandoned} abandonments at most"
    return nobody("I9 bounded attempts", f"under {limit} and {MOST_ABANDONED}", told, wrong, "steps")
