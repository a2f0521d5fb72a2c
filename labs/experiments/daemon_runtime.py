"""The guide's lab 6: the health pages are right, and a SIGTERM during work loses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from labs.checks import at_least, noted
from labs.experiment import CheckResult, Experiment, Guide
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

GRACE = 8
OLD = "status = 'processing' and processing_started_at < now() - interval '2 seconds'"


def fault(stage: Stage) -> None:
    stage.note("quiet", pages(stage))
    without_elasticsearch(stage)
    without_database(stage)
    stop_in_the_middle(stage)


def pages(stage: Stage) -> dict[str, Any]:
    worker = stage.worker("w1")
    ready, body = worker.page("/readyz")
    status = json.loads(body)["status"] if body.startswith("{") else body
    return {"healthz": worker.page("/healthz")[0], "readyz": ready, "status": status}


def without_elasticsearch(stage: Stage) -> None:
    stage.elastic_link.cut()
    stage.mark("Elasticsearch cut off", "fault")
    stage.wait_until(lambda: pages(stage)["status"] == "degraded", "degraded without Elasticsearch")
    stage.note("no_elasticsearch", pages(stage))
    stage.elastic_link.heal()
    stage.wait_until(lambda: pages(stage)["status"] == "ready", "ready again")


def without_database(stage: Stage) -> None:
    stage.database_link.cut()
    stage.mark("PostgreSQL cut off", "fault")
    stage.wait_until(lambda: pages(stage)["readyz"] == 503, "not ready without PostgreSQL")
    stage.note("no_database", pages(stage))
    stage.database_link.heal()
    stage.wait_until(lambda: pages(stage)["readyz"] == 200, "ready again")
    # A claim whose reply was lost holds its rows until the lease expires; that is independent of the drain.
    stage.wait_until(lambda: stage.table.count(OLD) == 0, "rows of the lost claim are reclaimed")


def stop_in_the_middle(stage: Stage) -> None:
    """Every bulk request takes a second, so that SIGTERM comes during one."""
    stage.elastic_link.slow(1.0)
    worker = stage.worker("w1")
    held = stage.wait_until(lambda: stage.table.count("status = 'processing'"), "rows processing")
    stage.note("in_hand_at_sigterm", held)
    began = stage.mark("SIGTERM w1", "kill")
    worker.ask_to_stop()
    pages: list[int] = []
    while worker.running and stage.story.now() < began + GRACE + 15:
        pages.append(worker.page("/readyz", 0.3)[0])
    stage.note("readyz_while_draining", [page for page in pages if page][-3:])
    stage.note("exit_code", worker.wait(1.0))
    stage.note("drain_seconds", round(stage.story.now() - began, 2))
    stage.note("left_leased", stage.table.count("status = 'processing'"))


def restore(stage: Stage) -> None:
    stage.elastic_link.heal()
    stage.database_link.heal()
    if not stage.worker("w1").running:
        stage.start("w1")


def pages_tell_the_truth(record: Record) -> CheckResult:
    notes = record.notes
    seen = {name: notes.get(name) or {} for name in ("quiet", "no_elasticsearch", "no_database")}
    observed = "; ".join(f"{name}: {page.get('readyz')} {page.get('status')}" for name, page in seen.items())
    wanted = {"quiet": (200, "ready"), "no_elasticsearch": (200, "degraded"), "no_database": (503, "not_ready")}
    ok = all((seen[name].get("readyz"), seen[name].get("status")) == page for name, page in wanted.items())
    return CheckResult(
        "/readyz",
        "ready; degraded (200) without Elasticsearch; 503 without PostgreSQL",
        observed,
        ok,
        "record.json (notes)",
    )


def always_alive(record: Record) -> CheckResult:
    pages = [record.notes.get(name, {}).get("healthz") for name in ("quiet", "no_elasticsearch", "no_database")]
    return CheckResult("/healthz", "200 through all of it", str(pages), pages == [200, 200, 200], "record.json (notes)")


def drained(record: Record) -> CheckResult:
    notes = record.notes
    seen = f"exit {notes.get('exit_code')} after {notes.get('drain_seconds')} s, {notes.get('left_leased')} rows leased"
    ok = notes.get("exit_code") == 0 and notes.get("left_leased") == 0 and notes.get("drain_seconds", 99) <= GRACE + 2
    expected = f"exit 0 within {GRACE} s, no row left leased"
    return CheckResult("Graceful shutdown", expected, seen, ok, "record.json (notes), logs/w1.ndjson")


def says_draining(record: Record) -> CheckResult:
    seen = record.notes.get("readyz_while_draining") or [0]
    lines = [len(record.said("worker.draining")), len(record.said("worker.stopped", clean=True))]
    expected = "/readyz 503; worker.draining, worker.stopped in the log"
    return CheckResult("Draining is announced", expected, f"{seen}", seen[-1] == 503 and all(lines), "logs/w1.ndjson")


def conclusion(record: Record) -> Sequence[tuple[str, str]]:
    pages, end = pages_tell_the_truth(record).ok and always_alive(record).ok, drained(record).ok
    return (
        ("Rows claimed at SIGTERM", str(record.notes.get("in_hand_at_sigterm"))),
        ("SIGTERM: stops claiming, finishes or releases, exit 0", "yes" if end else "no"),
        ("/healthz and /readyz are right", "yes" if pages else "no"),
        ("v4 daemon runtime", "OK" if pages and end and says_draining(record).ok else "FAIL"),
    )


EXPERIMENT = Experiment(
    name="daemon_runtime",
    title="Health pages, and SIGTERM during work",
    story="A rollout replaces the daemon while it works; a probe restarts what seems dead; a load balancer follows"
    " /readyz.",
    hypothesis=(
        "/readyz is 200 and says `degraded` without Elasticsearch, 503 without PostgreSQL and while draining; /healthz"
        " stays 200. After SIGTERM the daemon finishes or releases its rows and exits with 0 within its grace."
    ),
    load=Load("mixed", rate=30),
    database_link=True,
    settings={"OUTBOX_SHUTDOWN_GRACE_SECONDS": str(GRACE)},
    fault=fault,
    restore=restore,
    bit=at_least("rows claimed at SIGTERM", noted("in_hand_at_sigterm"), 1, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        pages_tell_the_truth,
        always_alive,
        drained,
        says_draining,
        recovered_within(15),
    ),
    finding=lambda record: (
        f"SIGTERM with {record.notes['in_hand_at_sigterm']} claimed rows: exit with 0 after"
        f" {record.notes['drain_seconds']} s;"
    ),
    guide=Guide(6, "9.4", "v4", conclusion),
    runbook="docs/runbooks/OutboxInstanceDown.md",
    seconds=35,
)
