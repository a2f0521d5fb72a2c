"""What `outbox doctor` says about the work itself: who runs, what failed, what is stuck or paused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from outbox.ops.status import Status, age
from outbox.ports import Finding, Level


class QueueExam(Protocol):
    def look(self) -> Status: ...


def queue(desk: QueueExam) -> Iterator[Finding]:
    status = desk.look()
    yield _workers(status)
    if status.queue.failed:
        reasons = ", ".join(f"{n} {reason or 'without a reason'}" for reason, n in status.failed_by_reason.items())
        remedy = "See `outbox list --status failed`; mend the cause, then `outbox-replay --by NAME --reason WHY`."
        yield Finding("failed", Level.WARN, f"failed events: {reasons}", remedy)
    if status.queue.stuck:
        remedy = "A running projector takes them back by itself; without one start `outbox run`."
        yield Finding("stuck", Level.WARN, f"held by workers that are gone: {status.queue.stuck}", remedy)
    for pause in status.pauses:
        if pause["kind"] == "pause":
            what = "everything" if pause["scope"] == "*" else pause["scope"].removeprefix("type:")
            remedy = "Run `outbox resume --by NAME --reason WHY` when it is time."
            yield Finding("paused", Level.WARN, f"{what} is paused by {pause['by']}: {pause['reason']}", remedy)


def _workers(status: Status) -> Finding:
    alive = [worker for worker in status.workers if worker.alive]
    if alive:
        return Finding("workers", Level.OK, f"{len(alive)} alive: {', '.join(w.worker for w in alive[:5])}")
    if status.queue.lag:
        waits = f"{status.queue.lag} open, the oldest {age(status.queue.oldest_age_seconds)} old"
        return Finding("workers", Level.BAD, f"no projector runs: {waits}", "Start `outbox run`.")
    return Finding("workers", Level.WARN, "no projector runs; nothing waits", "Start `outbox run`.")
