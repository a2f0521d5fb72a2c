"""Turns facts into log lines. Sets up no logger (see log_setup) and never shows a payload."""

import re
import threading
import time
from collections.abc import Callable, Mapping
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
RETRY: Final = "event.retry_scheduled"
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-|\Z)")

Handler = Callable[[Any], None]


class _Lane(threading.local):
    """What was logged of this lane's batch: all facts of a batch come from one thread."""

    batch: UUID | None = None
    retries: int = 0


class LogSubscriber:
    """Subscribe `handle`. Two lines per batch, none per done event. What a line holds is declared with its fact."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._log = logger
        self._lane = _Lane()
        self._lost_until: dict[str, float] = {}  # where -> when its next line may come
        self._handlers: Mapping[type[facts.Fact], Handler] = {
            facts.WorkerStopped: self._stopped,
            facts.BatchClaimed: self._claimed,
            facts.BatchSettled: self._settled,
            facts.NoProgress: self._no_progress,
            facts.AttemptFailed: self._attempt_failed,
            facts.BulkSent: lambda fact: self._write(fact) if fact.failures else None,
            facts.Reclaimed: lambda fact: self._write(fact) if fact.count else None,
            facts.DatabaseLost: self._database_lost,
            facts.DatabaseBack: self._database_back,
            facts.PartitionsRevoked: self._revoked,
            facts.TablePruned: lambda fact: self._write(fact) if fact.count else None,
            facts.WebhookTried: lambda fact: self._write(fact) if fact.result != "delivered" else None,
            facts.IndexVerified: self._verified,
            facts.AccessJudged: self._access,
            facts.Warned: lambda fact: self._write(fact, **_free(fact.fields)),
        }

    def handle(self, fact: facts.Fact) -> None:
        handler: Handler = self._handlers.get(type(fact), self._write)
        handler(fact)

    def broken_subscriber(self, error: Exception) -> None:
        """For `Announcer(on_error=...)`: a subscriber that failed is a bug of ours and stops nothing."""
        self._log.error("subscriber.failed", error=f"{type(error).__name__}: {error}")

    def _write(self, fact: facts.Fact, level: str = "", /, **more: Any) -> None:
        if (line := fact.line) is not None:
            write = getattr(self._log, level or line.level)
            write(line.event.format_map(vars(fact)), **_declared(fact, line), **more)

    def _stopped(self, fact: facts.WorkerStopped) -> None:
        self._write(fact, "info" if fact.clean else "warning", uptime_seconds=round(fact.uptime_seconds, 1))

    def _claimed(self, fact: facts.BatchClaimed) -> None:
        self._lane.batch, self._lane.retries = fact.token, 0
        if fact.count:
            self._write(fact, suspects=True if fact.suspects else None)

    def _settled(self, fact: facts.BatchSettled) -> None:
        self._log_more_retries(fact.token)
        names = ("done", "superseded", "missing", "retried", "released", "failed", "lost")
        counts = {name: getattr(fact, name) for name in names}
        self._write(fact, counts={name: count for name, count in counts.items() if count or name == "done"})

    def _no_progress(self, fact: facts.NoProgress) -> None:
        """One such batch may be a suspended machine; the third in a row needs a person."""
        level, runbook = ("warning", RUNBOOK) if fact.in_a_row >= LIVELOCK_BATCHES else ("info", None)
        fields = _attributes(fact, "lane reason detail in_a_row")
        wait_seconds = round(fact.wait_seconds, 1)
        self._write(fact, level, batch=self._lane.batch, **fields, wait_seconds=wait_seconds, runbook=runbook)

    def _attempt_failed(self, fact: facts.AttemptFailed) -> None:
        if fact.retry_seconds is None:
            dead_reason = str(fact.dead_reason) if fact.dead_reason else None
            self._write(fact, batch=self._lane.batch, **_of(fact), dead_reason=dead_reason)
            return
        self._lane.retries += 1
        if self._lane.retries <= MOST_RETRY_LINES:
            retry_seconds = round(fact.retry_seconds, 3)
            self._log.info(RETRY, batch=self._lane.batch, **_of(fact), retry_seconds=retry_seconds)

    def _log_more_retries(self, token: UUID) -> None:
        more, self._lane.retries = self._lane.retries - MOST_RETRY_LINES, 0
        if more > 0:
            self._log.info(RETRY, batch=token, counts={"more": more})

    def _database_lost(self, fact: facts.DatabaseLost) -> None:
        """Every loop reports this in each round; one line per half minute is enough."""
        now = time.monotonic()
        if now >= self._lost_until.get(fact.where, 0.0):
            self._lost_until[fact.where] = now + LOST_AGAIN_SECONDS
            self._write(fact)

    def _database_back(self, fact: facts.DatabaseBack) -> None:
        self._lost_until.pop(fact.where, None)
        self._write(fact)

    def _revoked(self, fact: facts.PartitionsRevoked) -> None:
        counts = {"in_flight": fact.in_flight} if fact.in_flight else None
        if fact.lost:
            self._log.warning("stream.lost", **_attributes(fact, "topic partitions"), counts=counts)
        else:
            self._write(fact, counts=counts)

    def _verified(self, fact: facts.IndexVerified) -> None:
        level = "warning" if any(fact.drift.values()) else "info"
        self._write(fact, level, counts={"compared": fact.compared, **fact.drift})

    def _access(self, fact: facts.AccessJudged) -> None:
        if not fact.told:
            self._write(fact, "info" if fact.verdict is facts.AccessVerdict.LOGGED_IN else "warning")


def _declared(fact: facts.Fact, line: facts.DeclaredLine) -> dict[str, Any]:
    fields = _attributes(fact, line.fields)
    if line.counts:
        fields["counts"] = _attributes(fact, line.counts)
    return fields | {name: text.format_map(vars(fact)) for name, text in line.texts.items()}


def _attributes(fact: facts.Fact, declared: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in declared.split():
        name, _, attribute = each.rstrip("?").partition("=")
        value = getattr(fact, attribute or name)
        if name.endswith("_ms"):
            value = round(value * 1000, 1)
        found[name] = value if value or not each.endswith("?") else None
    return found


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
