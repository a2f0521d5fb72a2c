"""What a lookup of documents means for those who asked: found, gone, or not to be believed. Records nothing."""

import threading
from collections import Counter, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from outbox.errors import DocumentsUnavailable
from outbox.facts import Announce, BrakeOff, BrakeOn, SinkPaused, SinkResumed
from outbox.policy.brake import HOLD_SECONDS, MOST_FINGERPRINTS, WINDOW_SECONDS
from outbox.policy.document import Stack
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import LOOKUPS_BRAKED, TOO_MANY_GONE, Judged, Settlement, view_away
from outbox.ports import Clock, Document, DocumentSource, EventStore, Named

DOCUMENTS: Final = "documents"  # the target that is paused while the view cannot be read
SAMPLE: Final = 100  # entities of a type that were there lately: are they still?
LEAST_OF_A_TYPE: Final = 10
SAMPLE_SECONDS: Final = 10.0  # an answer holds for so long
KEPT_OF_A_BATCH: Final = 5
MOST_TYPES: Final = 1_000  # whose last found entities are remembered
LOOKUPS: Final = "lookups_without_a_row"  # begins the lookup brakes' fingerprints, for people and for --let-fail
_TYPE: Final = itemgetter(Event._fields.index("entity_type"))


@dataclass(slots=True)
class LookupBrake:
    """Half the entities gone at once looks like a broken view, not like deletes: then nothing is deleted."""

    least: int = 50
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)
    held: int = 0
    _last_held: float = 0.0

    def admit(self, looked_up: int, missing: int, now: float) -> bool:
        """May these missing rows become deletes?"""
        while self._seen and self._seen[0][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()
        self._seen.append((now, looked_up, missing))
        total = sum(n for _, n, _ in self._seen)
        gone = sum(n for _, _, n in self._seen)
        return missing == 0 or total < self.least or gone * 2 <= total

    def hold(self, missing: int, now: float) -> bool:
        """They wait. True: they are the first since it was off."""
        first = not self.held
        self.held, self._last_held = self.held + missing, now
        return first

    def released(self, now: float, *, let_fail: bool) -> int:
        """How many it has held, once it is off again: like `Brake`'s fingerprints. 0: it is on, or was never."""
        if not let_fail and now - self._last_held <= HOLD_SECONDS + WINDOW_SECONDS:
            return 0
        held, self.held = self.held, 0
        return held


class CheckedLookups(NamedTuple):
    """`stacks` go on, but for those with a failure in `bad`, by the id of their newest event."""

    stacks: Sequence[Stack]
    bad: Mapping[UUID, Failure]
    verdicts: Sequence[Judged]


@dataclass(slots=True)
class Lookups:
    """One process's judgement of its view; lanes share it, because the brakes count over all of them."""

    store: EventStore
    documents: DocumentSource
    announce: Announce
    clock: Clock
    brakes: dict[str, LookupBrake] = field(default_factory=dict)  # by entity type
    lets_fail: set[str] = field(default_factory=set)  # what operators have checked
    _away_since: float | None = None
    _found: dict[str, deque[Event]] = field(default_factory=dict)  # by type, lately
    _sampled: dict[str, tuple[float, bool]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, stacks: Sequence[Stack], found: Mapping[UUID, Document], events: Sequence[Event]) -> CheckedLookups:
        """`events` were looked up. Many entities of one type gone at once look like a broken view: they are held, until
        others of the type are found. An entity that has a delete says nothing about the view, and does not count."""
        self._back()
        if all(map(_is_there, found.values())):  # as nearly always
            for kind, number in Counter(map(_TYPE, events)).items():
                self._admit(kind, number, 0)
            self._remember(events)
            return CheckedLookups(stacks, {}, ())
        bad = {id: document.failure for id, document in found.items() if document.failure is not None}
        counted = [stack for stack in stacks if stack.viewed and not _has_delete(stack)]
        missing = [stack.head for stack in counted if _is_gone(found[stack.head.id])]
        deleted = self.store.deleted(missing) if missing else set()
        gone = {kind: [e for e in missing if e.entity_type == kind and e.id not in deleted] for kind in _types(missing)}
        asked = Counter(stack.head.entity_type for stack in counted)
        held = self._held({kind: (number, gone.get(kind, [])) for kind, number in asked.items()})
        ids = {event.id for kind in held for event in gone[kind]}
        braked = [stack for stack in stacks if stack.head.id in ids]
        return CheckedLookups([s for s in stacks if s.head.id not in ids], bad, _for_all(braked, LOOKUPS_BRAKED))

    def _held(self, asked: Mapping[str, tuple[int, Sequence[Event]]]) -> set[str]:
        """Types of which nothing may go now; `asked` says how many were looked up, and which were gone."""
        doubted = {kind: gone for kind, (n, gone) in asked.items() if not self._admit(kind, n, len(gone))}
        there = self._others_are_there({kind: {event.entity_id for event in gone} for kind, gone in doubted.items()})
        for kind in there:
            self._let_go(kind)
        held = doubted.keys() - there
        for kind in held:
            self._hold(kind, len(doubted[kind]))
        return set(held)

    def _admit(self, kind: str, looked_up: int, missing: int) -> bool:
        """May the entities of this type that were not found be deleted?"""
        with self._lock:
            brake = self._brake(kind)
            admitted = brake is None or brake.admit(looked_up, missing, self.clock())
            return admitted or bool(self.lets_fail & {LOOKUPS, _fingerprint(kind)})

    def _brake(self, kind: str) -> LookupBrake | None:
        """The one that was used longest ago makes room, but not while it holds rows back. None: they all do."""
        brake = self.brakes.pop(kind, None)
        if brake is None and len(self.brakes) >= MOST_FINGERPRINTS:
            idle = next((known for known, brake in self.brakes.items() if not brake.held), None)
            if idle is None:
                return None
            del self.brakes[idle]
        self.brakes[kind] = brake or LookupBrake()
        return self.brakes[kind]

    def _hold(self, kind: str, missing: int) -> None:
        with self._lock:
            brake = self._brake(kind)
            first = brake is not None and brake.hold(missing, self.clock())
        if first:
            self.announce(BrakeOn(_fingerprint(kind), TOO_MANY_GONE.reason, TOO_MANY_GONE.error))

    def _let_go(self, kind: str) -> None:
        """Others of the type are there, so these are gone."""
        with self._lock:
            brake = self.brakes.pop(kind, None)
        if brake is not None and brake.held:
            self.announce(BrakeOff(_fingerprint(kind), brake.held))

    def let_fail(self, chosen: frozenset[str]) -> None:
        """Called every second: what operators let fail, and types that have come to rest."""
        with self._lock:
            now = self.clock()
            self.lets_fail &= chosen
            self.lets_fail |= chosen
            released = [
                (_fingerprint(kind), held)
                for kind, brake in self.brakes.items()
                if (held := brake.released(now, let_fail=bool(chosen & {LOOKUPS, _fingerprint(kind)})))
            ]
        for fingerprint, held in released:
            self.announce(BrakeOff(fingerprint, held))

    def _others_are_there(self, gone: Mapping[str, Container[str]]) -> set[str]:
        """Types of which most other entities, that were there lately, are still there: a view that is right has them.
        One statement for all types, and the sample is the smaller for each the more they are."""
        now = self.clock()
        self._sampled = {kind: held for kind, held in self._sampled.items() if now - held[0] <= SAMPLE_SECONDS}
        asked = [kind for kind in gone if kind not in self._sampled]
        if asked:
            samples = self._samples(asked, gone)
            found = self._load_sample([event for sample in samples.values() for event in sample])
            for kind, sample in samples.items():
                there = sum(_is_there(found[event.id]) for event in sample if event.id in found)
                self._sampled[kind] = (now, there * 2 > len(sample))
        return {kind for kind in gone if self._sampled[kind][1]}

    def _samples(self, kinds: Sequence[str], gone: Mapping[str, Container[str]]) -> dict[str, list[Named]]:
        known: dict[str, dict[str, Named]] = {kind: {} for kind in kinds}
        lately = self.store.lately_done(kinds, SAMPLE)
        for event in chain(*(self._found.get(kind, ()) for kind in kinds), lately):
            if event.entity_id not in gone[event.entity_type]:
                known[event.entity_type][event.entity_id] = event
        most = max(SAMPLE // len(kinds), LEAST_OF_A_TYPE)
        return {kind: list(others.values())[:most] for kind, others in known.items()}

    def _load_sample(self, sample: Sequence[Named]) -> Mapping[UUID, Document]:
        try:
            return self.documents.load(sample) if sample else {}
        except DocumentsUnavailable:
            return {}

    def _remember(self, events: Sequence[Event]) -> None:
        for event in events[-KEPT_OF_A_BATCH:]:
            if event.entity_type in self._found or len(self._found) < MOST_TYPES:
                self._found.setdefault(event.entity_type, deque(maxlen=SAMPLE)).append(event._replace(payload=None))

    def away(self, error: DocumentsUnavailable, events: Sequence[Event]) -> list[Judged]:
        failure = Failure(Reason.DOCUMENTS_UNAVAILABLE, error.detail or error.message)
        with self._lock:
            first = self._away_since is None
            self._away_since = self._away_since or self.clock()
        if first:
            self.announce(SinkPaused(DOCUMENTS, failure.reason, failure.error))
        return [(event, view_away(failure)) for event in events]

    def _back(self) -> None:
        with self._lock:
            since, self._away_since = self._away_since, None
        if since is not None:
            self.announce(SinkResumed(DOCUMENTS, Reason.DOCUMENTS_UNAVAILABLE, self.clock() - since))


def _fingerprint(kind: str) -> str:
    return f"{LOOKUPS}:{kind}"


def _for_all(stacks: Sequence[Stack], settlement: Settlement) -> list[Judged]:
    return [(event, settlement) for stack in stacks for event in stack.events]


def _types(events: Sequence[Event]) -> set[str]:
    return {event.entity_type for event in events}


def _has_delete(stack: Stack) -> bool:
    return any(event.op == DELETE for event in stack.events)


def _is_gone(document: Document) -> bool:
    return document.size_bytes is None and document.failure is None


def _is_there(document: Document) -> bool:
    return document.size_bytes is not None and document.failure is None
