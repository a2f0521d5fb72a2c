"""Turns facts into log lines. Sets up no logger (see log_setup) and never shows a payload."""

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from uuid import UUID

from structlog.typing import FilteringBoundLogger

from outbox import facts
from outbox.policy.event import Event

# An outage retries whole batches: the first lines show the cause, more would only repeat it.
MOST_RETRY_LINES: Final = 20
LOST_AGAIN_SECONDS: Final = 30.0
LIVELOCK_BATCHES: Final = 3
RUNBOOK: Final = "docs/runbooks/OutboxNoProgress.md"
GAP_RUNBOOK: Final = "docs/runbooks/OutboxStreamGap.md"
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-|\Z)")

Handler = Callable[[Any], None]


class _Lane(threading.local):
    """What was logged of this lane's batch: all facts of a batch come from one thread."""

    batch: UUID | None = None
    retries: int = 0


class LogSubscriber:
    """Subscribe `handle`. Two lines per batch, none per done event."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._log = logger
        self._lane = _Lane()
        self._lost_until: dict[str, float] = {}  # where -> when its next line may come
        self._handlers = self._table()

    def handle(self, fact: facts.Fact) -> None:
        handler = self._handlers.get(type(fact))
        if handler is not None:
            handler(fact)

    @property
    def handled(self) -> Collection[type[Any]]:
        """The facts that are logged."""
        return self._handlers.keys()

    def broken_subscriber(self, error: Exception) -> None:
        """For `Announcer(on_error=...)`: a subscriber that failed is a bug of ours and stops nothing."""
        self._log.error("subscriber.failed", error=f"{type(error).__name__}: {error}")

    def _table(self) -> Mapping[type[Any], Handler]:
        return {
            facts.WorkerStarted: self._started,
            facts.WorkerDraining: self._draining,
            facts.WorkerStopped: self._stopped,
            facts.BatchClaimed: self._claimed,
            facts.BatchSettled: self._settled,
            facts.NoProgress: self._no_progress,
            facts.AttemptFailed: self._attempt_failed,
            facts.BulkSent: self._bulk,
            facts.Unclassified: self._unclassified,
            facts.LeaseLost: self._lease_lost,
            facts.Reclaimed: self._reclaimed,
            facts.SinkPaused: self._sink_paused,
            facts.SinkResumed: self._sink_resumed,
            facts.OperatorPaused: self._operator_paused,
            facts.OperatorResumed: lambda f: self._log.info("operator.resumed", scope=f.scope),
            facts.BrakeOn: self._brake_on,
            facts.BrakeOff: lambda f: self._log.info("brake.off", fingerprint=f.fingerprint, held=f.held),
            facts.LimitChanged: lambda f: self._log.debug("limit.changed", items=f.items, reason=f.why),
            facts.NodeLeftOut: lambda f: self._log.warning("node.left_out", node=f.node, error=f.error),
            facts.NodeBack: self._node_back,
            facts.VersionAhead: self._ahead,
            facts.VersionRaised: self._raised,
            facts.DatabaseLost: self._database_lost,
            facts.DatabaseBack: self._database_back,
            facts.PartitionsAssigned: self._assigned,
            facts.PartitionsRevoked: self._revoked,
            facts.CommitRefused: self._commit_refused,
            facts.StreamGap: self._gap,
            facts.StreamFault: self._stream_fault,
            facts.SampleMissed: lambda f: self._log.warning("sample.missed", error=f.error),
            facts.EventsReplayed: self._replayed,
            facts.ReplaySettled: self._replay_settled,
            facts.EventDiscarded: self._discarded,
            facts.EventsFlushed: self._flushed,
            facts.TablePruned: self._pruned,
            facts.WebhookTried: self._webhook,
            facts.IndexVerified: self._verified,
            facts.SinkIdentified: self._identified,
            facts.Warned: self._warned,
        }

    def _started(self, fact: facts.WorkerStarted) -> None:
        self._log.info("worker.started", version=fact.version, lanes=fact.lanes, target=fact.target)

    def _draining(self, fact: facts.WorkerDraining) -> None:
        self._log.info("worker.draining", reason=fact.signal, grace_seconds=fact.grace_seconds)

    def _stopped(self, fact: facts.WorkerStopped) -> None:
        log = self._log.info if fact.clean else self._log.warning
        uptime = round(fact.uptime_seconds, 1)
        log("worker.stopped", clean=fact.clean, released=fact.released, uptime_seconds=uptime)

    def _claimed(self, fact: facts.BatchClaimed) -> None:
        self._lane.batch, self._lane.retries = fact.token, 0
        if fact.count:
            suspects = True if fact.suspects else None
            duration = _ms(fact.duration_seconds)
            self._log.info(
                "batch.claimed",
                batch=fact.token,
                lane=fact.lane,
                duration_ms=duration,
                counts={"claimed": fact.count},
                suspects=suspects,
            )

    def _settled(self, fact: facts.BatchSettled) -> None:
        self._log_more_retries(fact.token)
        names = ("done", "superseded", "missing", "retried", "released", "failed", "lost")
        counts = {name: getattr(fact, name) for name in names}
        self._log.info(
            "batch.settled",
            batch=fact.token,
            lane=fact.lane,
            duration_ms=_ms(fact.duration_seconds),
            settle_ms=_ms(fact.settle_seconds),
            counts={name: count for name, count in counts.items() if count or name == "done"},
        )

    def _no_progress(self, fact: facts.NoProgress) -> None:
        """One such batch may be a suspended machine; the third in a row needs a person."""
        log = self._log.warning if fact.in_a_row >= LIVELOCK_BATCHES else self._log.info
        log(
            "batch.no_progress",
            batch=self._lane.batch,
            lane=fact.lane,
            reason=fact.reason,
            detail=fact.detail,
            in_a_row=fact.in_a_row,
            wait_seconds=round(fact.wait_seconds, 1),
            runbook=RUNBOOK if fact.in_a_row >= LIVELOCK_BATCHES else None,
        )

    def _attempt_failed(self, fact: facts.AttemptFailed) -> None:
        if fact.retry_seconds is None:
            dead_reason = str(fact.dead_reason) if fact.dead_reason else None
            self._log.warning("event.failed", batch=self._lane.batch, **_of(fact), dead_reason=dead_reason)
            return
        self._lane.retries += 1
        if self._lane.retries <= MOST_RETRY_LINES:
            retry_seconds = round(fact.retry_seconds, 3)
            self._log.info("event.retry_scheduled", batch=self._lane.batch, **_of(fact), retry_seconds=retry_seconds)

    def _log_more_retries(self, token: UUID) -> None:
        more, self._lane.retries = self._lane.retries - MOST_RETRY_LINES, 0
        if more > 0:
            self._log.info("event.retry_scheduled", batch=token, counts={"more": more})

    def _bulk(self, fact: facts.BulkSent) -> None:
        if not fact.failures:
            return
        self._log.warning(
            "bulk.partial_failure",
            result=fact.result,
            target=fact.target,
            duration_ms=_ms(fact.duration_seconds),
            counts=dict(fact.failures),
        )

    def _unclassified(self, fact: facts.Unclassified) -> None:
        self._log.warning("reply.unclassified", status=fact.status, error_type=fact.error_type)

    def _lease_lost(self, fact: facts.LeaseLost) -> None:
        self._log.warning("lease.lost", batch=fact.token, where=fact.where, counts={"lost": fact.count})

    def _reclaimed(self, fact: facts.Reclaimed) -> None:
        if fact.count:
            line = f"Reclaimed {fact.count} stuck outbox events (expired lease or max processing exceeded)"
            counts = {"reclaimed": fact.count, "abandoned": fact.abandoned, "failed": fact.failed}
            self._log.warning(line, counts=counts)

    def _sink_paused(self, fact: facts.SinkPaused) -> None:
        self._log.warning("sink.paused", target=fact.target, reason=fact.cause, error=fact.detail)

    def _sink_resumed(self, fact: facts.SinkResumed) -> None:
        duration = _ms(fact.paused_seconds)
        self._log.info("sink.resumed", target=fact.target, reason=fact.cause, duration_ms=duration)

    def _operator_paused(self, fact: facts.OperatorPaused) -> None:
        self._log.warning("operator.paused", scope=fact.scope, by=fact.by, reason=fact.reason)

    def _brake_on(self, fact: facts.BrakeOn) -> None:
        remedy = f"outbox resume --let-fail {fact.fingerprint}"
        self._log.error("brake.on", fingerprint=fact.fingerprint, reason=fact.reason, error=fact.error, remedy=remedy)

    def _node_back(self, fact: facts.NodeBack) -> None:
        self._log.info("node.back", node=fact.node, duration_ms=_ms(fact.left_out_seconds))

    def _ahead(self, fact: facts.VersionAhead) -> None:
        self._log.warning(
            "version.ahead",
            event_id=fact.event_id,
            entity_type=fact.entity_type,
            entity_id=fact.entity_id,
            sent=fact.sent,
            current=fact.current,
        )

    def _raised(self, fact: facts.VersionRaised) -> None:
        remedy = "was the database restored or failed over? then run `outbox refresh --all`; runbook: OutboxIndexAhead"
        self._log.warning("version.raised", was=fact.was, now=fact.now, remedy=remedy)

    def _database_lost(self, fact: facts.DatabaseLost) -> None:
        """Every loop reports this in each round; one line per half minute is enough."""
        now = time.monotonic()
        if now >= self._lost_until.get(fact.where, 0.0):
            self._lost_until[fact.where] = now + LOST_AGAIN_SECONDS
            self._log.warning("database.lost", where=fact.where, error=fact.error)

    def _database_back(self, fact: facts.DatabaseBack) -> None:
        self._lost_until.pop(fact.where, None)
        self._log.info("database.back", where=fact.where, duration_ms=_ms(fact.away_seconds))

    def _assigned(self, fact: facts.PartitionsAssigned) -> None:
        self._log.info("stream.assigned", topic=fact.topic, partitions=list(fact.partitions))

    def _revoked(self, fact: facts.PartitionsRevoked) -> None:
        log = self._log.warning if fact.lost else self._log.info
        counts = {"in_flight": fact.in_flight} if fact.in_flight else None
        event = "stream.lost" if fact.lost else "stream.revoked"
        log(event, topic=fact.topic, partitions=list(fact.partitions), counts=counts)

    def _commit_refused(self, fact: facts.CommitRefused) -> None:
        offsets = {str(partition): offset for partition, offset in fact.offsets.items()}
        self._log.warning("stream.commit_refused", topic=fact.topic, offsets=offsets, error=fact.error)

    def _gap(self, fact: facts.StreamGap) -> None:
        """Loud: nobody but a person can close it."""
        remedy = "run `outbox verify`, then `outbox refresh --all`; write events with payloads of that time again"
        self._log.error(
            "stream.gap",
            topic=fact.topic,
            partition=fact.partition,
            expected=fact.expected,
            found=fact.found,
            remedy=remedy,
            runbook=GAP_RUNBOOK,
        )

    def _stream_fault(self, fact: facts.StreamFault) -> None:
        self._log.warning("stream.fault", error=fact.error)

    def _replayed(self, fact: facts.EventsReplayed) -> None:
        counts = {"replayed": fact.count, "skipped": fact.skipped}
        self._log.info("replay.dispatched", batch=fact.batch, source=fact.source, by=fact.by, counts=counts)

    def _replay_settled(self, fact: facts.ReplaySettled) -> None:
        counts = {"done": fact.done, "failed_again": fact.failed_again, "still_open": fact.still_open}
        self._log.info(
            "replay.settled",
            batch=fact.batch,
            status=fact.status,
            reason=fact.reason or None,
            duration_ms=_ms(fact.duration_seconds),
            counts=counts,
        )

    def _discarded(self, fact: facts.EventDiscarded) -> None:
        self._log.info(
            "event.discarded",
            event_id=fact.event_id,
            entity_type=fact.entity_type,
            entity_id=fact.entity_id,
            by=fact.by or None,
            reason=fact.reason or None,
        )

    def _flushed(self, fact: facts.EventsFlushed) -> None:
        counts = {"discarded": fact.count}
        self._log.info("event.discarded", batch=fact.batch, by=fact.by, reason=fact.reason, counts=counts)

    def _pruned(self, fact: facts.TablePruned) -> None:
        if fact.count:
            duration = _ms(fact.duration_seconds)
            self._log.info("prune.done", table=fact.table, duration_ms=duration, counts={"pruned": fact.count})

    def _webhook(self, fact: facts.WebhookTried) -> None:
        if fact.result != "delivered":
            self._log.warning(
                "webhook.failed",
                webhook=fact.webhook,
                result=fact.result,
                attempts=fact.attempt,
                error=fact.error,
            )

    def _verified(self, fact: facts.IndexVerified) -> None:
        log = self._log.warning if any(fact.drift.values()) else self._log.info
        counts = {"compared": fact.compared, **fact.drift}
        log("verify.done", duration_ms=_ms(fact.duration_seconds), counts=counts)

    def _identified(self, fact: facts.SinkIdentified) -> None:
        self._log.info("sink.identified", product=fact.product, server_version=fact.version or None)

    def _warned(self, fact: facts.Warned) -> None:
        self._log.warning(fact.event, message=fact.message, **_free(fact.fields))


def _of(fact: facts.AttemptFailed) -> dict[str, Any]:
    event = fact.event
    return {
        "event_id": event.id,
        "entity_type": event.entity_type,
        "entity_id": event.entity_id,
        "op": event.op,
        "attempts": event.attempts,
        "reason": str(fact.failure.reason),
        "error_code": str(fact.failure.code),
        "error": fact.failure.error,
        "trace_id": _trace_id(event),
    }


def _trace_id(event: Event) -> str | None:
    """The trace part of `00-<32 hex>-<16 hex>-01`; anything else in its place is not shown."""
    found = _TRACEPARENT.match(event.traceparent or "")
    return found[1] if found else None


def _free(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A field must not replace one that every line has."""
    return {name if name not in ("event", "level", "message") else f"{name}_": v for name, v in fields.items()}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
