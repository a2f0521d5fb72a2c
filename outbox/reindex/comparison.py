"""Walks entities and documents, finds what differs and reports it. Writes nothing; what it reads is `document_pairs`.

Memory is bounded: a page of documents, some thousand mismatches without their bodies, and a report of counts.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outbox.policy.drift import NO_SOURCE, DriftFinding, DriftReport, HeldDocument, Key, Kind, Truth, judge, seen_of
from outbox.reindex.document_pairs import DocumentPairs
from outbox.reindex.mismatches import Mismatch, Mismatches
from outbox.reindex.pacing import JobPace

# The first wait where events come by Kafka: the connector needs a moment to write what the database has committed.
STREAM_FIRST_SECONDS: Final = 5.0
PAGE: Final = 500
SUCCESSORS: Final = 4  # of each document of the random sample: so entities that the index lacks are met too
NOT_OURS: Final = "no event of this projection could have made such an id"


@dataclass(frozen=True, slots=True)
class ComparedTarget:
    """What is compared: the entity types of one configured target, with the documents of one index."""

    name: str
    index: str  # the same, unless another index is to be compared
    types: tuple[str, ...]
    estimate: int


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str
    done: int
    estimate: int
    drift: int
    remark: str = ""


@dataclass(slots=True)
class Comparison:
    sides: DocumentPairs
    pace: JobPace
    report: DriftReport
    on_progress: Callable[[Progress], None] = lambda _: None
    on_finding: Callable[[DriftFinding], None] = lambda _: None
    doubts: Mismatches = field(init=False)
    walked: int = 0

    def __post_init__(self) -> None:
        self.doubts = Mismatches(self.sides.recheck, self._certain, self._in_flux)
        if self.sides.on_the_way is not None:
            self.doubts.waits = (STREAM_FIRST_SECONDS, *self.doubts.waits[1:])
            self.doubts.arrived = self._arrived

    def target(self, name: str, index: str, entity_type: str | None = None) -> ComparedTarget:
        """Raises what is wrong before anything is walked: no such index, no way to walk PostgreSQL."""
        index_of = self.sides.naming.index_of
        known = [kind for kind in self.sides.source.types() if index_of(kind) == name]
        types = tuple(kind for kind in known if entity_type in (None, kind))
        return ComparedTarget(name, index, types, self.sides.prepare(index))

    def entities_of(self, target: ComparedTarget, kind: str, low: str | None, high: str | None) -> None:
        """Those of one part. Its doubts are its own, and settled at its end."""
        while ids := self.sides.source.keys(kind, low, PAGE, high):
            self._compare(target, [Key(kind, id) for id in ids], orphans=False)
            self._step("entities", len(ids), target)
            low = ids[-1]
        self.doubts.drain()

    def documents_of(self, target: ComparedTarget, place: Mapping[str, Any], entity_type: str | None) -> None:
        """The orphans of one slice of the index."""
        for page in self.sides.documents.scan_slice(place):
            self._find_orphans(target, page, entity_type)
            self._step("documents", len(page), target)
        self.doubts.drain()

    def sample_of(self, target: ComparedTarget, number: int) -> None:
        """A random sample of documents, and entities that follow ids of the index with one letter exchanged: so those
        that the index lacks are met too."""
        drawn = self.sides.documents.sample(target.index, number, random.randrange(2**31))  # noqa: S311
        keys = list(dict.fromkeys(key for held in drawn if (key := self._key_of(target, held)) is not None))
        met = set(keys)
        for start in range(0, len(keys), PAGE):
            self._compare(target, keys[start : start + PAGE])
            self._step("sample", len(keys[start : start + PAGE]), target)
        for kind in target.types:
            ids = [key.entity_id for key in keys if key.entity_type == kind]
            for pivot in _pivots(ids, max(1, number // SUCCESSORS // len(target.types))):
                following = {Key(kind, id) for id in self.sides.source.keys(kind, pivot, SUCCESSORS)} - met
                met |= following
                self._compare(target, list(following))
                self._step("sample", len(following), target)
        self.doubts.drain()

    # One page

    def _compare(self, target: ComparedTarget, keys: Sequence[Key], *, orphans: bool = True) -> None:
        """`orphans` False: a deleted entity is left to the walk over the index, which would count it twice."""
        for truth, found in self.sides.both(target.index, keys):
            if truth.text is None and truth.failure is None and not orphans:
                continue
            self.report.compared += 1
            if truth.failure is not None:
                self.report.cannot_read(truth.key, truth.failure)
                continue
            held = found[0] if found else None
            if judge(truth, held) is not None:
                self._doubt(target.index, truth, held)
            elif held is not None:
                self.report.without_source += held.source is NO_SOURCE
            for extra in found[1:]:
                self._doubt(target.index, Truth(truth.key), extra, extra=True)

    def _find_orphans(self, target: ComparedTarget, page: Sequence[HeldDocument], entity_type: str | None) -> None:
        """A document that PostgreSQL does not have is doubted."""
        meant = {held.id: (key, held) for held in page if (key := self._key_of(target, held, entity_type)) is not None}
        present = self.sides.source.present([key for key, _ in meant.values()])
        for key, held in meant.values():
            if key not in present:
                self._doubt(target.index, Truth(key), held)

    def _key_of(self, target: ComparedTarget, held: HeldDocument, entity_type: str | None = None) -> Key | None:
        """The entity that a document means. None: of another type than asked for, or unknown, and reported as such."""
        keys = self.sides.naming.keys_of(held.id, target.types)
        if entity_type is not None and keys and keys[0].entity_type != entity_type:
            return None
        if len(keys) > 1:
            return next(iter(self.sides.source.present(keys)), keys[0])
        if keys and keys[0].entity_type in target.types:
            return keys[0]
        if entity_type is None:
            why = f"no entity type {keys[0].entity_type[:80]!r} is projected to {target.name}" if keys else NOT_OURS
            key = keys[0] if keys else None
            self._certain(
                DriftFinding(Kind.UNKNOWN, target.index, held.id, key, None, held.version, held.routing, why=why)
            )
        return None

    def _doubt(self, index: str, truth: Truth, held: HeldDocument | None, *, extra: bool = False) -> None:
        id = self.sides.naming.id_of(truth.key)
        # An orphan was seen without its source: its second check is the first that counts.
        seen = seen_of(truth, held) if truth.text is not None else ()
        too_many = held.routing if extra and held is not None else None
        self.doubts.add(Mismatch(index, id, truth.key, seen, self.doubts.clock(), extra, too_many))

    def _certain(self, finding: DriftFinding) -> None:
        self.report.found(finding)
        self.on_finding(finding)

    def _in_flux(self, doubt: Mismatch) -> None:
        self.report.in_flux += 1
        self.report.unjudged += self.sides.on_the_way is not None and bool(self.sides.on_the_way.late)

    def _arrived(self) -> bool:
        """Before doubts are judged: the records that may have made them are settled."""
        mark = self.sides.on_the_way
        if mark is None:
            return True
        passed = mark.passed()
        if mark.unknown:
            self.report.note(mark.unknown)
        if passed:
            return True
        self.report.note(f"{mark.late}; what may still change was not judged")
        return False

    def _step(self, phase: str, n: int, target: ComparedTarget) -> None:
        self.walked += n
        self.doubts.advance()
        self.on_progress(Progress(phase, self.walked, target.estimate, self.report.drift))
        self.pace.took(n)


def _pivots(ids: Sequence[str], number: int) -> Iterator[str | None]:
    """Places to begin at: ids of the index with one letter exchanged, which lie among those that it has not."""
    letters = sorted({letter for id in ids for letter in id if letter.isalnum()})
    if not letters:
        yield None
        return
    for _ in range(number):
        id = random.choice(ids)  # noqa: S311
        places = [place for place, letter in enumerate(id) if letter.isalnum()] or [0]
        place = random.choice(places)  # noqa: S311
        yield id[:place] + random.choice(letters) + id[place + 1 :]  # noqa: S311
