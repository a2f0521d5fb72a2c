"""What a lookup of documents means for those who asked: found, gone, or not to be believed. Records nothing."""

import threading
from collections import Counter, deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from outbox.daemon.brake import WINDOW_SECONDS, Brake
from outbox.errors import DocumentsUnavailable
from outbox.facts import Announce, SinkPaused, SinkResumed
from outbox.policy.document import Stack
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure, Reason
from outbox.policy.settle import LOOKUPS_BRAKED, TOO_MANY_GONE, VIEW_PAUSE_SECONDS, Judged, Released
from outbox.ports import Clock, Document, DocumentSource, EventStore, Named

DOCUMENTS: Final = "documents"  # the target that is paused while the view cannot be read
SAMPLE: Final = 100  # entities of a type that were there lately: are they still?
LEAST_OF_A_TYPE: Final = 10
SAMPLE_SECONDS: Final = 10.0  # an answer holds for so long
KEPT_OF_A_BATCH: Final = 5
MOST_TYPES: Final = 1_000  # whose lookups of the last minute, and last found entities, are remembered
LEAST_LOOKUPS: Final = 50
LOOKUPS: Final = "lookups_without_a_row"  # begins the lookup brakes' fingerprints, for people and for --let-fail
_TYPE: Final = itemgetter(Event._fields.index("entity_type"))


class CheckedLookups(NamedTuple):
    """`stacks` go on, but for those with a failure in `bad`, by the id of their newest event."""

    stacks: Sequence[Stack]
    bad: Mapping[UUID, Failure]
    verdicts: Sequence[Judged]


@dataclass(slots=True)
class Lookups:
    """One process's judgement of its view; lanes share it."""

    store: EventStore
    documents: DocumentSource
    announce: Announce
    clock: Clock
    brake: Brake  # one fingerprint per entity type
    # By type, within the last minute: when, how many were looked up, and how many of them were gone.
    _seen: dict[str, deque[tuple[float, int, int]]] = field(default_factory=dict)
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
                self._admits(kind, number, 0)
            self._remember(events)
            return CheckedLookups(stacks, {}, ())
        bad = {id: document.failure for id, document in found.items() if document.failure is not None}
        counted = [stack for stack in stacks if stack.viewed and DELETE not in {event.op for event in stack.events}]
        missing = [stack.head for stack in counted if _is_gone(found[stack.head.id])]
        deleted = self.store.deleted(missing) if missing else set()
        gone = {kind: [e for e in missing if e.entity_type == kind and e.id not in deleted] for kind in _types(missing)}
        asked = Counter(stack.head.entity_type for stack in counted)
        held = self._held({kind: (number, gone.get(kind, [])) for kind, number in asked.items()})
        ids = {event.id for kind in held for event in gone[kind]}
        braked = (event for stack in stacks if stack.head.id in ids for event in stack.events)
        verdicts = [(event, LOOKUPS_BRAKED) for event in braked]
        return CheckedLookups([s for s in stacks if s.head.id not in ids], bad, verdicts)

    def _held(self, asked: Mapping[str, tuple[int, Sequence[Event]]]) -> set[str]:
        """Types of which nothing may go now; `asked` says how many were looked up, and which were gone."""
        doubted = {kind: gone for kind, (n, gone) in asked.items() if not self._admits(kind, n, len(gone))}
        there = self._others_are_there({kind: {event.entity_id for event in gone} for kind, gone in doubted.items()})
        for kind in there:  # others of the type are, so these are gone
            with self._lock:
                self._seen.pop(kind, None)
            self.brake.let_go(_fingerprint(kind))
        held = doubted.keys() - there
        for kind in held:
            self.brake.hold(_fingerprint(kind), len(doubted[kind]), TOO_MANY_GONE)
        return set(held)

    def _admits(self, kind: str, looked_up: int, gone: int) -> bool:
        """May so many entities of this type that were not found be deleted? More than half of a minute's lookups are a
        sign of a broken view."""
        now = self.clock()
        with self._lock:
            seen = self._seen_of(kind)
            seen.append((now, looked_up, gone))
            while seen[0][0] <= now - WINDOW_SECONDS:
                seen.popleft()
            total = sum(n for _, n, _ in seen) if gone else 0
            right = total < LEAST_LOOKUPS or sum(n for _, _, n in seen) * 2 <= total
        return right or self.brake.lets(_fingerprint(kind))

    def _seen_of(self, kind: str) -> deque[tuple[float, int, int]]:
        """The type that was looked up longest ago makes room, but not one that is held."""
        seen = self._seen.pop(kind, None)
        if seen is None and len(self._seen) >= MOST_TYPES:
            idle = (known for known in self._seen if not self.brake.holds(_fingerprint(known)))
            del self._seen[next(idle, next(iter(self._seen)))]
        self._seen[kind] = seen or deque()
        return self._seen[kind]

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
        waits = Released(failure.reason, VIEW_PAUSE_SECONDS, failure)
        return [(event, waits) for event in events]

    def _back(self) -> None:
        with self._lock:
            since, self._away_since = self._away_since, None
        if since is not None:
            self.announce(SinkResumed(DOCUMENTS, Reason.DOCUMENTS_UNAVAILABLE, self.clock() - since))


def _fingerprint(kind: str) -> str:
    return f"{LOOKUPS}:{kind}"


def _types(events: Sequence[Event]) -> set[str]:
    return {event.entity_type for event in events}


def _is_gone(document: Document) -> bool:
    return document.size_bytes is None and document.failure is None


def _is_there(document: Document) -> bool:
    return document.size_bytes is not None and document.failure is None
