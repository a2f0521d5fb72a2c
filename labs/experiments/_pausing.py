"""The common part of labs about a paused target: waiting for the pause, and its checks."""

from __future__ import annotations

from labs.checks import at_least, nobody, when
from labs.experiment import Check, CheckResult
from labs.record import Record
from labs.stage import Stage


def until_paused(stage: Stage, cause: str) -> None:
    """Also notes the reply of /readyz meanwhile, which is 200 and `degraded`."""
    metric = f"outbox_paused{{cause={cause}}}"
    stage.wait_until(lambda: stage.total(metric) > 0, f"paused by {cause}")
    stage.note("readyz_while_paused", list(stage.worker().page("/readyz")))


def paused(cause: str) -> Check:
    return at_least(
        f"outbox_paused{{cause={cause}}}", lambda r: r.most(f"outbox_paused{{cause={cause}}}"), 1, "timeline"
    )


def no_attempt_spent(record: Record) -> CheckResult:
    """Released rows got their attempt back: each was delivered at its first attempt."""
    over = [id for id, row in record.events.items() if row["attempts"] > 1]
    seen = max(int(row["attempts"]) for row in record.events.values())
    return nobody(
        "No attempt is counted", "every row is done at its first attempt", f"{seen} at most", over, "events.ndjson"
    )


def pause_is_said(cause: str) -> Check:
    def check(record: Record) -> CheckResult:
        lines = [record.said("sink.paused", reason=cause), record.said("sink.resumed", reason=cause)]
        status, page = record.notes.get("readyz_while_paused", [0, ""])
        ok = all(lines) and status == 200 and cause in page and '"degraded"' in page
        observed = f"{len(lines[0])} sink.paused, {len(lines[1])} sink.resumed; /readyz {status}"
        expected = f"log lines and /readyz (200, degraded) name {cause}"
        return CheckResult("The cause is reported", expected, observed, ok, "logs/, record.json (notes)")

    check.__name__ = f"the cause is reported: {cause}"
    return check


def waited(record: Record) -> str:
    """For the report's summary: how soon it paused and resumed."""
    began = next(marker["t"] for marker in record.about["markers"] if marker["kind"] == "fault")
    stopped = when(record.said("sink.paused")[0]["ts"]) - record.about["began_at"] - began
    return f"It paused {max(stopped, 0):.1f} s after the fault and resumed {_resumed(record):.1f} s after its end."


def in_time(record: Record) -> CheckResult:
    """Probes are at most five seconds apart, so it may take that long to notice the end."""
    last = _resumed(record)
    return CheckResult("It resumes automatically", "within 8 s of the end", f"{last:.1f} s", -60 < last <= 8, "logs/")


def _resumed(record: Record) -> float:
    resumed = [when(line["ts"]) for line in record.said("sink.resumed")]
    return max(resumed, default=0.0) - when(record.notes["healed_at"])
