"""Owns how a replay and its plan read, as a table and as JSON. It moves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from outbox.cli import output
from outbox.policy.replay import ReplayBatch

if TYPE_CHECKING:
    from outbox.ops.plan import Plan

_COUNTED = 10_000


def batch_record(batch: ReplayBatch) -> dict[str, Any]:
    """Everything; of the webhook's address only its host, because its path is often a secret."""
    record = asdict(batch) | {"discarded": batch.discarded, "left": batch.left}
    return record | {"webhook_url": record.pop("webhook_to")}


def told(batch: ReplayBatch) -> str:
    """One line: what moved, and how it ended so far."""
    parts = [f"replay {batch.id} is {batch.status}", f"{batch.replayed:,} of {batch.total:,} replayed"]
    counts = {"skipped": batch.skipped, "done": batch.done, "failed again": batch.failed_again}
    counts |= {"open": batch.still_open, "discarded": batch.discarded}
    parts += [f"{n:,} {word}" for word, n in counts.items() if n]
    return ", ".join([*parts, *([batch.reason] if batch.reason else [])])


def print_batch(batch: ReplayBatch) -> None:
    output.line(told(batch))
    if not batch.is_over:
        output.note(f"see how it goes on: outbox replays show {batch.id}")


def plan_record(plan: Plan) -> dict[str, Any]:
    """The pinned ids are in the plan's file."""
    return {name: value for name, value in asdict(plan).items() if name != "ids"}


def print_plan(plan: Plan) -> None:
    more = "+" if plan.matched > _COUNTED else ""
    output.line(f"{plan.total:,} events would be replayed; {min(plan.matched, _COUNTED):,}{more} match")
    if plan.skipped:
        output.line("skipped: " + ", ".join(f"{n:,} {state}" for state, n in plan.skipped.items()))
    if not plan.total:
        return
    output.line(f"failed from {output.shown(plan.oldest)} to {output.shown(plan.newest)}")
    output.line(_superseded(plan))
    for title, counts in (
        ("entity type", plan.by_entity_type),
        ("error reason", plan.by_error_reason),
        ("fingerprint", plan.by_fingerprint),
    ):
        _print_counts(title, counts)
    rows = [
        (
            row["id"],
            f"{row['entity_type']}:{row['entity_id']}",
            row["failed_at"],
            row["error_reason"],
            _cut(row["error"]),
        )
        for row in plan.sample
    ]
    output.table(("first ones", "entity", "failed", "reason", "error"), rows)


def _superseded(plan: Plan) -> str:
    if plan.superseded is None:
        return "superseded: not known, Elasticsearch does not answer"
    of = "" if plan.compared >= plan.total else f" of the first {plan.compared:,}"
    return f"superseded: {plan.superseded:,}{of} have a newer version in Elasticsearch and will change nothing"


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    output.line()
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    output.table((title, "events"), [(name, f"{n:,}") for name, n in ordered[:20]])
    if len(ordered) > 20:
        output.line(f"and {len(ordered) - 20} more")


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= 100 else text[:99] + "…"
