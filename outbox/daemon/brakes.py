"""The brakes of one process, shared by its lanes, and the facts that report them. Policy decides when one is on."""

import threading
from dataclasses import dataclass, field
from typing import Final

from outbox.facts import Announce, BrakeOff, BrakeOn
from outbox.policy.brake import MOST_FINGERPRINTS, Brake, LookupBrake
from outbox.policy.outcome import Failure
from outbox.policy.settle import TOO_MANY_GONE
from outbox.ports import Clock

LOOKUPS: Final = "lookups_without_a_row"  # begins the lookup brakes' fingerprints, for people and for --let-fail


@dataclass(slots=True)
class Brakes:
    announce: Announce
    clock: Clock
    failures: Brake = field(default_factory=Brake)
    lookups: dict[str, LookupBrake] = field(default_factory=dict)  # by entity type
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, failure: Failure) -> bool:
        """May one more event fail with this?"""
        fingerprint = failure.fingerprint or failure.reason
        with self._lock:
            was_on = self.failures.is_on(fingerprint)
            admitted = self.failures.admit(fingerprint, self.clock())
        if not admitted and not was_on:
            self.announce(BrakeOn(fingerprint, failure.reason, failure.error))
        return admitted

    def admit_missing(self, kind: str, looked_up: int, missing: int) -> bool:
        """May the entities of this type that were not found be deleted?"""
        with self._lock:
            brake = self._lookup_brake(kind)
            admitted = brake is None or brake.admit(looked_up, missing, self.clock())
            return admitted or bool(self.failures.let_fail & {LOOKUPS, _name(kind)})

    def _lookup_brake(self, kind: str) -> LookupBrake | None:
        """The one that was used longest ago makes room, but not while it holds rows back. None: they all do."""
        brake = self.lookups.pop(kind, None)
        if brake is None and len(self.lookups) >= MOST_FINGERPRINTS:
            idle = next((known for known, brake in self.lookups.items() if not brake.held), None)
            if idle is None:
                return None
            del self.lookups[idle]
        self.lookups[kind] = brake or LookupBrake()
        return self.lookups[kind]

    def hold_missing(self, kind: str, missing: int) -> None:
        with self._lock:
            brake = self._lookup_brake(kind)
            first = brake is not None and brake.hold(missing, self.clock())
        if first:
            self.announce(BrakeOn(_name(kind), TOO_MANY_GONE.reason, TOO_MANY_GONE.error))

    def let_go(self, kind: str) -> None:
        """Others of the type are there, so these are gone."""
        with self._lock:
            brake = self.lookups.pop(kind, None)
        if brake is not None and brake.held:
            self.announce(BrakeOff(_name(kind), brake.held))

    def tend(self, let_fail: frozenset[str]) -> None:
        """Called every second: what operators let fail, and fingerprints that have come to rest."""
        with self._lock:
            now = self.clock()
            self.failures.let_fail = let_fail
            released = self.failures.released(now)
            for kind, brake in self.lookups.items():
                if held := brake.released(now, let_fail=bool(let_fail & {LOOKUPS, _name(kind)})):
                    released.append((_name(kind), held))
        for fingerprint, held in released:
            self.announce(BrakeOff(fingerprint, held))


def _name(kind: str) -> str:
    return f"{LOOKUPS}:{kind}"
