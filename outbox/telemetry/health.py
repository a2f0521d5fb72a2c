"""Derives from facts whether this daemon is alive and ready. It asks no server and serves no page (see web)."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from outbox import facts
from outbox.policy.outcome import FailureClass, Reason
from outbox.telemetry.beats import Beats
from outbox.telemetry.debounce import Clock, Debounced, ReadyCheck, WallClock
from outbox.telemetry.redaction import redactor, shorten

AWAY: Final = frozenset(str(reason) for reason in Reason if reason.failure_class is FailureClass.TRANSIENT)
_DETAIL_CHARACTERS: Final = 300
# What the status line says of the first check that is not ok.
_LINES: Final = {
    "draining": "draining",
    "database": "waiting for PostgreSQL",
    "schema": "waiting for the schema",
    "paused": "paused",
    "elasticsearch": "waiting for Elasticsearch",
    "kafka": "waiting for Kafka",
    "last_success": "no progress",
}
# How long after the grace the process may take to exit before /healthz reports that it hangs.
_AFTER_GRACE_SECONDS: Final = 10.0

Handler = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class ReadyRules:
    """The rules of /readyz. Types: what this daemon claims (empty = all) and what it leaves to others."""

    freshness_seconds: float = 60.0
    require_es_ready: bool = False
    entity_types: Collection[str] = ()
    exclude_entity_types: Collection[str] = ()

    def due(self, backlog: facts.BacklogSampled) -> int:
        """Rows that this daemon could claim now; other daemons' types do not count."""
        due_of = {entity_type: lane.due for entity_type, lane in backlog.lanes.items()}
        if self.entity_types:
            return sum(due_of.get(entity_type, 0) for entity_type in self.entity_types)
        return backlog.due - sum(due_of.get(entity_type, 0) for entity_type in self.exclude_entity_types)


@dataclass(frozen=True, slots=True)
class Readiness:
    """`status`: ready, degraded (still 200) or not_ready."""

    status: str
    checks: Mapping[str, ReadyCheck]

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "checks": {name: check.as_json() for name, check in self.checks.items()}}


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class _Draining:
    since: datetime
    until: float
    signal: str


class Health:
    """Subscribe `handle`. `alive` feeds /healthz and the watchdog, `readiness` feeds /readyz."""

    def __init__(
        self,
        rules: ReadyRules | None = None,
        beats: Beats | None = None,
        clock: Clock = time.monotonic,
        wall: WallClock = _utc_now,
    ) -> None:
        self.beats = beats or Beats(clock=clock)
        self._rules = rules or ReadyRules()
        self._clock = clock
        self._wall = wall
        self._redact = redactor()
        self._lock = threading.Lock()
        self._database = Debounced(clock, wall, "not connected yet")
        self._schema = Debounced(clock, wall, "not checked yet")
        self._elasticsearch = Debounced(clock, wall)
        self._left_out: dict[str, str] = {}  # node -> why
        self._fresh = Debounced(clock, wall)
        self._fresh.set(True, "nothing done since the start")
        self._pauses: dict[str, str] = {}  # scope -> why
        self._paused_since = wall()
        self._draining: _Draining | None = None
        self._started = wall()
        self._last_success: float | None = None
        self._livelock = ""
        self._due = 0
        self._stream = Debounced(clock, wall, "not assigned yet")
        self._lag: dict[int, int] = {}  # by partition of this worker
        self._reads_stream = False
        self._waiting_since: float | None = None
        self._handlers = self._table()

    def handle(self, fact: facts.Fact) -> None:
        if isinstance(fact, facts.Beat):
            self.beats.beat(fact.loop)
            return
        handler = self._handlers.get(type(fact))
        if handler is not None:
            with self._lock:
                handler(fact)
                self._track_waiting()

    def alive(self) -> bool:
        """While the daemon drains its loops end; then only the grace counts."""
        draining = self._draining
        return self._clock() <= draining.until if draining else self.beats.alive()

    def readiness(self) -> Readiness:
        with self._lock:
            self._check_freshness()
            checks = {
                "database": self._database.check(),
                "schema": self._schema.check(),
                "elasticsearch": self._elasticsearch_check(),
                "paused": self._paused_check(),
                "last_success": self._fresh.check(),
                "draining": self._draining_check(),
            }
            if self._reads_stream:
                checks["kafka"] = self._stream.check()
        return Readiness(self._status(checks), checks)

    def line(self) -> str:
        """For `systemctl status`: what is waited for, or that it projects."""
        checks = self.readiness().checks
        wrong = (
            f"{said}: {checks[name].detail}" for name, said in _LINES.items() if name in checks and not checks[name].ok
        )
        return next(wrong, "projecting")

    def _status(self, checks: Mapping[str, ReadyCheck]) -> str:
        needed = ["database", "schema", "last_success", "draining"]
        if self._rules.require_es_ready:
            needed.append("elasticsearch")
        if not all(checks[name].ok for name in needed):
            return "not_ready"
        return "ready" if all(check.ok for check in checks.values()) else "degraded"

    def _table(self) -> Mapping[type[Any], Handler]:
        return {
            facts.BatchSettled: self._settled,
            facts.NoProgress: self._no_progress,
            # Any reply counts as good here: an error in it shows as a pause or as failed events.
            facts.BulkSent: lambda f: self._sink_seen(f.result != "unknown", "no readable reply to a bulk request"),
            facts.SinkProbed: lambda f: self._sink_seen(f.ok, f.detail),
            facts.NodeLeftOut: lambda f: self._left_out.update({f.node: self._shown(f.error)}),
            facts.NodeBack: lambda f: self._left_out.pop(f.node, None),
            facts.SinkPaused: self._sink_paused,
            facts.SinkResumed: self._sink_resumed,
            facts.OperatorPaused: lambda f: self._pause(
                f"operator {f.scope}", "paused by a person; `outbox status` shows who and why"
            ),
            facts.OperatorResumed: lambda f: self._resume(f"operator {f.scope}"),
            facts.BacklogSampled: self._sampled,
            facts.SampleMissed: lambda _: self._database.good(),
            facts.DatabaseLost: lambda f: self._database.bad(self._shown(f.error)),
            facts.DatabaseBack: lambda _: self._database.good(),
            facts.PartitionsAssigned: self._assigned,
            facts.PartitionsRevoked: self._revoked,
            facts.StreamSampled: self._stream_sampled,
            facts.StreamSeen: lambda _: self._stream.good(),
            facts.StreamFault: self._stream_fault,
            facts.SchemaChecked: lambda f: self._schema.set(f.ok, self._shown(f.detail)),
            facts.WorkerDraining: self._drain,
        }

    def _settled(self, fact: facts.BatchSettled) -> None:
        if not self._reads_stream or fact.lane == 0:  # records settle without the database; the first lane has rows
            self._database.good()
        if fact.done:
            self._last_success = self._clock()
            self._livelock = ""

    def _no_progress(self, fact: facts.NoProgress) -> None:
        detail = self._shown(fact.detail)
        self._livelock = f"batches without progress in a row: {fact.in_a_row} ({fact.reason}: {detail})"

    def _sink_seen(self, ok: bool, why_not: str) -> None:
        if ok:
            self._elasticsearch.good()
        else:
            self._elasticsearch.bad(self._shown(why_not))

    def _sink_paused(self, fact: facts.SinkPaused) -> None:
        detail = self._shown(fact.detail)
        if fact.cause in AWAY:
            self._elasticsearch.set(False, detail)
        self._pause(f"sink {fact.target}", f"{fact.cause}: {detail}")

    def _sink_resumed(self, fact: facts.SinkResumed) -> None:
        if fact.cause in AWAY:
            self._elasticsearch.set(True, "")
        self._resume(f"sink {fact.target}")

    def _pause(self, scope: str, why: str) -> None:
        if not self._pauses:
            self._paused_since = self._wall()
        self._pauses[scope] = why

    def _resume(self, scope: str) -> None:
        if self._pauses.pop(scope, None) is not None and not self._pauses:
            self._paused_since = self._wall()

    def _sampled(self, fact: facts.BacklogSampled) -> None:
        self._database.good()
        self._due = self._rules.due(fact)

    def _assigned(self, fact: facts.PartitionsAssigned) -> None:
        self._reads_stream = True
        self._stream.good()

    def _revoked(self, fact: facts.PartitionsRevoked) -> None:
        for partition in fact.partitions:
            self._lag.pop(partition, None)

    def _stream_sampled(self, fact: facts.StreamSampled) -> None:
        self._reads_stream = True
        self._lag = dict(fact.lag)
        rests = {f"partition {number}": why for number, why in fact.resting.items()}
        for scope in [cause for cause in self._pauses if cause.startswith("partition ")]:
            if scope not in rests:
                self._resume(scope)
        for scope, why in rests.items():
            self._pause(scope, why)

    def _stream_fault(self, fact: facts.StreamFault) -> None:
        self._reads_stream = True
        self._stream.bad(self._shown(fact.error))

    def _drain(self, fact: facts.WorkerDraining) -> None:
        until = self._clock() + fact.grace_seconds + _AFTER_GRACE_SECONDS
        self._draining = _Draining(self._wall(), until, fact.signal)

    def _track_waiting(self) -> None:
        """Freshness counts only while rows or records are due, the sink answers and nothing is paused."""
        due = self._due + sum(self._lag.values())
        answers = self._elasticsearch.ok or not self._elasticsearch.known
        waiting = due > 0 and answers and not self._pauses
        if not waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self._clock()

    def _check_freshness(self) -> None:
        now, last = self._clock(), self._last_success
        detail = "nothing done since the start" if last is None else f"last success {now - last:.1f} s ago"
        waited = 0.0 if self._waiting_since is None else now - max(self._waiting_since, last or 0.0)
        stale = waited > self._rules.freshness_seconds
        why = f"; {self._livelock}" if self._livelock else ""
        self._fresh.set(
            not stale, f"{detail}, {self._due + sum(self._lag.values())} events due{why}" if stale else detail
        )

    def _elasticsearch_check(self) -> ReadyCheck:
        """Not checked yet is not an error, except where OUTBOX_REQUIRE_ES_READY waits for the first reply."""
        check = self._elasticsearch.check()
        unknown = not self._elasticsearch.known and not self._rules.require_es_ready
        return ReadyCheck(check.ok or unknown, check.since, self._with_nodes(check.detail))

    def _with_nodes(self, detail: str) -> str:
        """One of several nodes is no outage: the others get its requests."""
        nodes = [f"node {node} is left out: {why}" for node, why in sorted(self._left_out.items())]
        return shorten("; ".join(filter(None, [detail, *nodes])), 3 * _DETAIL_CHARACTERS)

    def _paused_check(self) -> ReadyCheck:
        detail = "; ".join(f"{scope}: {why}" for scope, why in sorted(self._pauses.items()))
        return ReadyCheck(not self._pauses, self._paused_since, shorten(detail, 3 * _DETAIL_CHARACTERS))

    def _draining_check(self) -> ReadyCheck:
        if self._draining is None:
            return ReadyCheck(True, self._started, "")
        return ReadyCheck(False, self._draining.since, f"stopping after {self._draining.signal}")

    def _shown(self, text: str) -> str:
        return shorten(self._redact(text), _DETAIL_CHARACTERS)
