"""What a daemon does once per second beside its lanes: polls pauses and other controls, open types and the brake;
checks versions ahead; announces the newest verification, and what the view reads that no attachment covers."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from outbox.daemon.claiming import Kinds
from outbox.daemon.gate import PauseGate
from outbox.errors import NotPermitted, OutboxError
from outbox.facts import (
    Announce,
    Beat,
    BulkSent,
    DatabaseLost,
    Fact,
    IndexVerified,
    SinkProbed,
    VersionAhead,
    VersionRaised,
    Warned,
)
from outbox.policy.coverage import REMEDY, told
from outbox.policy.event import Event
from outbox.policy.outcome import Failure
from outbox.policy.reindex import LastVerification
from outbox.ports import Clock, ControlRow

INTERVAL_SECONDS: Final = 1.0  # "obeyed within two seconds"
AHEAD_TIMEOUT_MS: Final = 500
UNKNOWN_SECONDS: Final = 60.0
CHECK_SECONDS: Final = 10.0  # an idle daemon still knows whether Elasticsearch answers


@dataclass(slots=True)
class Upkeep:
    controls: Callable[[], Sequence[ControlRow]]
    version_known: Callable[[str, str, int, int], bool | None]  # (type, id, version, limit in ms); None: too slow
    gate: PauseGate
    let_fail: Callable[[frozenset[str]], None]  # the brakes hear what operators let fail, every second
    ahead: deque[tuple[Event, int]]  # (event, version) that a projector could not explain
    kinds: Kinds
    open_types: Callable[[], Sequence[str]]
    targets: Sequence[str]
    probe: Callable[[str], Failure | None]
    announce: Announce
    clock: Clock
    warn_of_targets: Callable[[], bool]  # warns once of what is unsafe about an index; False = nobody answered yet
    tend: Callable[[], None] = lambda: None  # a rebuild's second target, the last verification
    _last_bulk: float = float("-inf")
    _unknown_at: float = float("-inf")
    _warned: bool = False

    def handle(self, fact: Fact) -> None:
        """A bulk that was answered is a better check than a probe."""
        if isinstance(fact, BulkSent):
            self._last_bulk = self.clock()

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(INTERVAL_SECONDS):
            self.pass_once()

    def pass_once(self) -> None:
        self.announce(Beat("upkeep"))
        try:
            self.tend()
            self.obey()
            self._check_one_version()
        except OutboxError as error:
            self.announce(DatabaseLost("upkeep", error.detail))
        self._check_sink()
        self._warned = self._warned or self.warn_of_targets()

    def obey(self) -> None:
        rows = self.controls()
        self.gate.obey(row for row in rows if row.kind == "pause")
        stopped = self.gate.types_stopped_by_operator()
        if self.kinds.always or (stopped and self.kinds.indexed):
            self.kinds.open = self.open_types()  # before `stopped`: a claim by type needs the types
        self.kinds.stopped = stopped
        let_fail = frozenset(row.scope.removeprefix("let_fail:") for row in rows if row.kind == "let_fail")
        self.let_fail(let_fail)

    def _check_one_version(self) -> None:
        """At most one query per second: Elasticsearch holds a version that no row of ours may know."""
        try:
            event, current = self.ahead.popleft()
        except IndexError:
            return
        known = self.version_known(event.entity_type, event.entity_id, current, AHEAD_TIMEOUT_MS)
        if known is None:
            self._could_not_check(event, current)
        elif not known:
            fact = VersionAhead(event.id, event.entity_type, event.entity_id, event.event_version, current)
            self.announce(fact)

    def _could_not_check(self, event: Event, current: int) -> None:
        """The database is there: only this check took too long. Announced once per minute at most."""
        now = self.clock()
        if now - self._unknown_at >= UNKNOWN_SECONDS:
            self._unknown_at = now
            message = (
                f"could not check in {AHEAD_TIMEOUT_MS} ms whether an event gave the document its version {current}: "
                "`outbox migrate --by-entity` adds an index for it, `outbox verify` compares"
            )
            self.announce(Warned("version.unknown", message, {"event_id": str(event.id)}))

    def _check_sink(self) -> None:
        now = self.clock()
        if now - self._last_bulk < CHECK_SECONDS or self.gate.paused_targets():
            return
        self._last_bulk = now
        for target in self.targets:
            self.announce(Beat("upkeep"))  # several that do not answer are no hang
            failure = self.probe(target)
            self.announce(SinkProbed(target, failure is None, "" if failure is None else failure.error))


NEWS_SECONDS: Final = 10.0
SEQUENCE_SECONDS: Final = 60.0
UNATTACHED_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 10.0


@dataclass(slots=True)
class Rarely:
    """Does something at the first call, and then so often. What fails is done again soon, not at each call: some of it
    costs a second of the server's time."""

    seconds: float
    do: Callable[[], None]
    clock: Clock
    _next: float = float("-inf")

    def tend(self) -> None:
        if self.clock() >= self._next:
            self._next = self.clock() + min(self.seconds, AGAIN_SECONDS)
            self.do()
            self._next = self.clock() + self.seconds


@dataclass(slots=True)
class News:
    announce: Announce
    _verification: int = 0

    def versions(self, raised: tuple[int, int] | None) -> None:
        """A database that was moved, or promoted, may have its rows and not their sequence."""
        if raised is not None:
            self.announce(VersionRaised(*raised))

    def verification(self, last: LastVerification | None) -> None:
        if last is not None and last.id != self._verification:
            self._verification = last.id
            self.announce(IndexVerified(last.drift, last.compared, last.duration_seconds, last.finished_at))

    def coverage(self, view: str, forgotten: Callable[[], Sequence[str]]) -> None:
        try:
            names = forgotten()
        except NotPermitted as error:
            self.announce(Warned("view.unattached", f"could not be checked: {error.detail}"))
            return
        if names:
            self.announce(Warned("view.unattached", told(view, names), {"remedy": REMEDY}))
