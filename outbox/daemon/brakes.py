"""The brakes of one process, shared by its lanes, and the facts that report them. Policy decides when one is on."""

import threading
from dataclasses import dataclass, field
from typing import Final

from outbox.facts import Announce, BrakeOff, BrakeOn
from outbox.policy.brake import Brake, LookupBrake
from outbox.policy.outcome import Failure
from outbox.policy.settle import TOO_MANY_GONE
from outbox.ports import Clock

LOOKUPS: Final = "lookups_without_a_row"  # the lookup brake's fingerprint, for people and for --let-fail


@dataclass(slots=True)
class Brakes:
    announce: Announce
    clock: Clock
    failures: Brake = field(default_factory=Brake)
    lookups: LookupBrake = field(default_factory=LookupBrake)
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

    def admit_missing(self, looked_up: int, missing: int) -> bool:
        """May the entities that were not found be deleted?"""
        with self._lock:
            now = self.clock()
            if self.lookups.admit(looked_up, missing, now) or LOOKUPS in self.failures.let_fail:
                return True
            first = self.lookups.hold(missing, now)
        if first:
            self.announce(BrakeOn(LOOKUPS, TOO_MANY_GONE.reason, TOO_MANY_GONE.error))
        return False

    def tend(self, let_fail: frozenset[str]) -> None:
        """Called every second: what operators let fail, and fingerprints that have come to rest."""
        with self._lock:
            now = self.clock()
            self.failures.let_fail = let_fail
            released = self.failures.released(now)
            if lookups := self.lookups.released(now, let_fail=LOOKUPS in let_fail):
                released.append((LOOKUPS, lookups))
        for fingerprint, held in released:
            self.announce(BrakeOff(fingerprint, held))
