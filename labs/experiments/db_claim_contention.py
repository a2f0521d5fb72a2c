"""Three daemons and another session's row locks on one backlog: every event is claimed once, and no claim waits."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import psycopg

from labs.checks import at_least, exactly, holds, nobody, noted
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

BACKLOG, LOCKED = 1500, 150
NOTES = "record.json (notes)"
OPEN = "processed_at is null and failed_at is null and id = any (%(ids)s)"
LOCK = "select id from search_outbox_events where id = any (%s::uuid[]) for update"


def fault(stage: Stage) -> None:
    for worker in stage.workers.values():
        worker.freeze()
    backlog = [UUID(id) for id in stage.table.burst(BACKLOG)]
    with psycopg.connect(stage.table.database_url) as stranger:
        stage.note("locked", len(stranger.execute(LOCK, [backlog[:LOCKED]]).fetchall()))
        for worker in stage.workers.values():
            worker.thaw()
        stage.mark(f"three daemons on {BACKLOG} events, {LOCKED} of them locked by another session", "fault")
        left = f"everything but {LOCKED} locked rows is done"
        began = stage.story.now()
        stage.wait_until(lambda: stage.table.count(OPEN, ids=backlog) <= LOCKED, left)
        stage.note("seconds_while_locked", round(stage.story.now() - began, 1))
        stage.note("left_while_locked", stage.table.count(OPEN, ids=backlog))
    stage.mark("the other session commits", "act")


def claimed_once(record: Record) -> CheckResult:
    claims = Counter(step["event_id"] for step in record.steps if step["new_status"] == "processing")
    twice = [id for id, n in claims.items() if n > 1]
    observed = f"{len(claims)} events, {len(twice)} claimed more than once"
    return nobody("Claimed once", "one claim per event", observed, twice, "steps.ndjson")


def shared(record: Record) -> CheckResult:
    owners = Counter(step["new_owner"] for step in record.steps if step["new_status"] == "processing")
    observed = ", ".join(f"{owner}: {n}" for owner, n in sorted(owners.items()))
    return holds("Every daemon has a share", "each of three daemons claims", observed, len(owners) == 3, "steps.ndjson")


def no_deadlock(record: Record) -> CheckResult:
    lines = [line for line in record.logs if "deadlock" in str(line).lower()]
    return holds("No deadlock", "none in any log", f"{len(lines)} lines", not lines, "logs/")


def finding(record: Record) -> str:
    locked, seconds = record.notes["locked"], record.notes["seconds_while_locked"]
    return f"Three daemons processed {BACKLOG - locked} events in {seconds} s while {locked} others were locked."


EXPERIMENT = Experiment(
    name="db_claim_contention",
    title="Many daemons, one backlog, foreign locks",
    story="A scale-out puts three daemons on one table while someone's report holds FOR UPDATE on a part of it.",
    hypothesis=(
        "Claims skip locked rows instead of waiting: all other events are done meanwhile, each is claimed once, every"
        " daemon has a share, and the locked ones follow when the locks are released."
    ),
    load=Load("create", rate=20),
    workers=("w1", "w2", "w3"),
    fault=fault,
    bit=at_least("rows locked by another session", noted("locked"), LOCKED, NOTES),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        exactly(
            "open events of the backlog while locked",
            lambda record: record.notes.get("left_while_locked"),
            LOCKED,
            NOTES,
        ),
        claimed_once,
        shared,
        no_deadlock,
        counters_are_true,
        recovered_within(20),
    ),
    finding=finding,
    runbook="docs/runbooks/OutboxLagNotFalling.md",
    seconds=25,
)
