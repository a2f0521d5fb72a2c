"""The receiver of webhooks is down: projection is not affected, and the message arrives when it is back."""

from __future__ import annotations

from labs.checks import at_least, at_most, holds, noted
from labs.experiment import CheckResult, Experiment
from labs.invariants import EVERYWHERE, counters_are_true
from labs.producing import Load
from labs.receiver import Receiver
from labs.record import Record
from labs.stage import Stage

SECRET = "whsec_bGFicyBhcmUgbm90IHByb2R1Y3Rpb24hIQ=="


def settings(stage: Stage) -> dict[str, str]:
    receiver = stage.resource("receiver", Receiver)
    return {
        "OUTBOX_WEBHOOK_URL": receiver.url,
        "OUTBOX_WEBHOOK_SECRET": SECRET,
        "OUTBOX_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
        "OUTBOX_WEBHOOK_TIMEOUT_SECONDS": "1",
    }


def fault(stage: Stage) -> None:
    receiver = stage.resource("receiver", Receiver)
    receiver.answer(503)
    stage.mark("the receiver answers 503", "fault")
    done = stage.table.count("status = 'done'")
    stage.table.insert("refused", payload={"title": "bad", "revision": "many"})
    stage.wait_until(lambda: receiver.tries >= 2, "deliveries are tried and fail")
    stage.note("done_meanwhile", stage.table.count("status = 'done'") - done)
    stage.note("tries", receiver.tries)


def restore(stage: Stage) -> None:
    receiver = stage.resource("receiver", Receiver)
    stage.note("tries", receiver.tries)  # one more may have failed during the wait for the alert
    receiver.answer(204)


def after(stage: Stage) -> None:
    receiver = stage.resource("receiver", Receiver)
    stage.wait_until(lambda: receiver.taken, "the message arrives", 150)
    stage.note("taken", [{"type": body["type"], "signed": signed} for body, signed in receiver.messages(SECRET)])


def arrives_signed(record: Record) -> CheckResult:
    taken = record.notes.get("taken") or []
    ok = any(message["type"] == "events.failed" and message["signed"] for message in taken)
    return holds("It arrives, signed", "events.failed with a valid signature", str(taken), ok, "record.json (notes)")


def slowest(record: Record) -> float:
    """Of the events that were committed during the fault."""
    began, ended = record.phase("fault") or (0.0, 0.0)
    start = float(record.about["began_at"])
    seconds = [
        float(record.events[entry.id]["seconds"] or 0)
        for entry in record.committed
        if start + began <= entry.at <= start + ended and record.events[entry.id]["status"] == "done"
    ]
    return max(seconds, default=99.0)


EXPERIMENT = Experiment(
    name="webhook_receiver_down",
    title="The webhook receiver is down",
    story="The chat system that gets our webhooks is down for maintenance while documents fail.",
    hypothesis=(
        "Projection continues at its rate; the delivery fails, is counted and logged, and is retried until the"
        " receiver accepts it, with a valid signature."
    ),
    load=Load("create", rate=30),
    own_settings=settings,
    fault=fault,
    restore=restore,
    after=after,
    bit=at_least("deliveries that failed", noted("tries"), 2, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        arrives_signed,
        at_most("the slowest event meanwhile", slowest, 5, "events.ndjson", " s"),
        at_least("events done meanwhile", noted("done_meanwhile"), 1, "record.json (notes)"),
        at_least("webhook.failed in the log", lambda record: len(record.said("webhook.failed")), 1, "logs/w1.ndjson"),
        counters_are_true,
    ),
    expected_alerts=("OutboxWebhookFailing",),
    finding=lambda record: f"{record.notes['tries']} deliveries failed before one arrived;",
    runbook="docs/runbooks/OutboxWebhookFailing.md",
    seconds=80,
)
