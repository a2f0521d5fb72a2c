"""Compares PostgreSQL with the index: `DocumentPairs` reads both, `Comparison` walks them and reports. Writes nothing.

Memory is bounded: a page of documents, some thousand mismatches without their bodies, and a report of counts.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from outbox.ops.reindex.pacing import JobPace
from outbox.ops.reindex.stream_mark import StreamMark
from outbox.policy.drift import (
    NO_SOURCE,
    DriftFinding,
    DriftReport,
    HeldDocument,
    Key,
    Kind,
    Truth,
    fields_of,
    judge,
    seen_of,
)
from outbox.policy.naming import Naming
from outbox.ports import Clock

WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0)  # before each further check; after the last it is in flux
MOST: Final = 20_000  # kept at once: beyond it the walk waits for verdicts
A_LOOK: Final = 500
# The first wait where events come by Kafka: the connector needs a moment to write what the database has committed.
STREAM_FIRST_SECONDS: Final = 5.0


@dataclass(slots=True)
class Mismatch:
    """One document of one index, as it was seen last."""

    index: str
    id: str
    key: Key
    seen: tuple[object, ...]
    at: float
    extra: bool = False  # a second document under the same id, with this routing
    routing: str | None = None
    checks: int = 1


@dataclass(frozen=True, slots=True)
class Recheck:
    """A later check. No finding: it is as it should be. `open`: an event of it is on its way."""

    seen: tuple[object, ...]
    finding: DriftFinding | None
    open: bool = False


@dataclass(slots=True)
class Mismatches:
    recheck: Callable[[Sequence[Mismatch]], Sequence[Recheck]]
    certain: Callable[[DriftFinding], None]
    in_flux: Callable[[Mismatch], None]
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    waits: Sequence[float] = field(default_factory=lambda: WAITS_SECONDS)
    arrived: Callable[[], bool] = lambda: True  # what was on its way before this call is in the index, or a row
    _kept: list[Mismatch] = field(default_factory=list)

    def add(self, doubt: Mismatch) -> None:
        self._kept.append(doubt)

    def advance(self) -> None:
        """Check again what is due; wait only while too much is kept."""
        self._pass()
        while len(self._kept) > MOST:
            self._wait()
            self._pass()

    def drain(self) -> None:
        self._pass()
        while self._kept:
            self._wait()
            self._pass()

    def _wait(self) -> None:
        due = min(self._due_at(doubt) for doubt in self._kept)
        self.rest(max(0.02, due - self.clock()))

    def _due_at(self, doubt: Mismatch) -> float:
        return doubt.at + self.waits[doubt.checks - 1]

    def _pass(self) -> None:
        now = self.clock()
        due = [doubt for doubt in self._kept if self._due_at(doubt) <= now]
        if not due:
            return
        self._kept = [doubt for doubt in self._kept if self._due_at(doubt) > now]
        arrived = self.arrived()
        for start in range(0, len(due), A_LOOK):
            portion = due[start : start + A_LOOK]
            for doubt, check in zip(portion, self.recheck(portion), strict=True):
                self._judge(doubt, check if arrived else replace(check, open=check.finding is not None))

    def _judge(self, doubt: Mismatch, check: Recheck) -> None:
        if check.finding is None and not check.open:
            return
        if check.finding is not None and not check.open and check.seen == doubt.seen:
            self.certain(check.finding)
            return
        doubt.seen, doubt.at, doubt.checks = check.seen, self.clock(), doubt.checks + 1
        if doubt.checks <= len(self.waits):
            self._kept.append(doubt)
        elif check.finding is not None:
            self.in_flux(doubt)


PORTION_BYTES: Final = 4 * 1024 * 1024


class TruthSource(Protocol):
    """PostgreSQL's side: the view or, for types that it does not have, each entity's newest event. Every call is a
    short snapshot of its own."""

    @property
    def view_types(self) -> frozenset[str]: ...
    @property
    def by_entity(self) -> bool: ...
    def types(self) -> Sequence[str]: ...
    def types_out_of_sight(self) -> Sequence[str]: ...
    def in_view(self, entity_type: str) -> bool: ...
    def refreshed(self, entity_type: str) -> bool: ...
    def routed_by_view(self) -> bool: ...
    def routed_by_events(self) -> bool: ...
    def keys(self, entity_type: str, after: str | None, limit: int, until: str | None = None) -> Sequence[str]: ...
    def present(self, keys: Sequence[Key]) -> frozenset[Key]: ...
    def load(self, keys: Sequence[Key], *, whole: bool = False, by_scan: bool = False) -> Sequence[Truth]: ...
    def newest_versions(self, keys: Sequence[Key]) -> Mapping[Key, tuple[int, str | None]]: ...
    def backlog_waits(self) -> bool: ...
    def open_of(self, keys: Sequence[Key]) -> frozenset[Key]: ...
    def failed_of(self, keys: Sequence[Key]) -> Mapping[Key, int]: ...


class IndexScan(Protocol):
    """Elasticsearch's side."""

    def count(self, index: str) -> int: ...
    def refresh(self, index: str) -> None: ...
    def is_routed(self, index: str) -> bool: ...
    def held(self, index: str, ids: Sequence[str], *, routed: bool = False) -> Mapping[str, Sequence[HeldDocument]]: ...
    def scan(self, index: str) -> Iterator[Sequence[HeldDocument]]: ...
    def open_slices(self, index: str, wanted: int) -> Sequence[Mapping[str, Any]]: ...
    def close_slices(self, slices: Sequence[Mapping[str, Any]]) -> None: ...
    def scan_slice(self, place: Mapping[str, Any]) -> Iterator[Sequence[HeldDocument]]: ...
    def sample(self, index: str, number: int, seed: int) -> Sequence[HeldDocument]: ...


@dataclass(slots=True)
class DocumentPairs:
    source: TruthSource
    documents: IndexScan
    naming: Naming
    routed: dict[str, bool] = field(default_factory=dict)
    primary: TruthSource | None = None  # where `source` is a replica: differences are judged by this one
    stream: StreamMark | None = None  # where events come by Kafka: what it holds is on its way

    def prepare(self, index: str) -> int:
        """How many documents there are. Raises where there is no such index; asks once whether routings are used."""
        self.documents.refresh(index)
        count = self.documents.count(index)
        self.routed[index] = self.documents.is_routed(index)
        return count

    @property
    def decisive(self) -> TruthSource:
        """A replica may lag behind both the primary and the index, so that what differs there need not be wrong."""
        return self.primary or self.source

    def both(
        self, index: str, keys: Sequence[Key], source: TruthSource | None = None
    ) -> Iterator[tuple[Truth, Sequence[HeldDocument]]]:
        """PostgreSQL first: a change in between shows as a document that is newer, never as one that is lost."""
        asked = source or self.source
        for portion in self._portions(asked.load(keys), asked):
            ids = [self.naming.id_of(truth.key) for truth in portion]
            found = self.documents.held(index, ids, routed=self.routed.get(index, False))
            for id, truth in zip(ids, portion, strict=True):
                yield truth, sorted(found.get(id, ()), key=lambda held: -held.version)

    def _portions(self, truths: Iterable[Truth], source: TruthSource) -> Iterator[list[Truth]]:
        """What can be held in memory together with its other half; a large document is loaded alone."""
        portion: list[Truth] = []
        weight = 0
        for truth in truths:
            if truth.size_bytes:
                yield list(source.load([truth.key], whole=True))
                continue
            size = len(truth.text or "")
            if portion and weight + size > PORTION_BYTES:
                yield portion
                portion, weight = [], 0
            portion.append(truth)
            weight += size
        if portion:
            yield portion

    # Later checks

    def recheck(self, doubts: Sequence[Mismatch]) -> list[Recheck]:
        """Open events first: whatever was committed before that and is not open any more has been projected."""
        keys, source = list(dict.fromkeys(doubt.key for doubt in doubts)), self.decisive
        open_now = source.open_of(keys)
        seen: dict[tuple[str, Key], tuple[Truth, Sequence[HeldDocument]]] = {}
        for index in {doubt.index for doubt in doubts}:
            if self.routed.get(index):
                self.documents.refresh(index)
            asked = [doubt.key for doubt in doubts if doubt.index == index]
            seen.update({(index, truth.key): (truth, held) for truth, held in self.both(index, asked, source)})
        failed = source.failed_of(keys)
        return [_recheck(doubt, *seen[doubt.index, doubt.key], doubt.key in open_now, failed) for doubt in doubts]


def _recheck(
    doubt: Mismatch, truth: Truth, found: Sequence[HeldDocument], is_open: bool, failed: Mapping[Key, int]
) -> Recheck:
    if doubt.extra:  # one `_id` under two routings: the older document is the one too many
        truth, found = Truth(doubt.key), [held for held in found[1:] if held.routing == doubt.routing]
    held = found[0] if found else None
    kind = None if truth.failure is not None else judge(truth, held)
    seen = seen_of(truth, held)
    if kind is None:
        return Recheck(seen, None)
    finding = DriftFinding(
        kind=kind,
        index=doubt.index,
        id=doubt.id,
        key=doubt.key,
        version=truth.version,
        held=None if held is None else held.version,
        routing=truth.routing if held is None else held.routing,
        fields=fields_of(truth, held) if kind is Kind.DIFFERENT else (),
        why=truth.foreign or "",
        failed=doubt.key in failed and (held is None or failed[doubt.key] >= held.version),
    )
    return Recheck(seen, finding, is_open)


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
    _walked: int = 0

    def __post_init__(self) -> None:
        self.doubts = Mismatches(self.sides.recheck, self._certain, self._in_flux)
        if self.sides.stream is not None:
            self.doubts.waits = (STREAM_FIRST_SECONDS, *WAITS_SECONDS[1:])
            self.doubts.arrived = self._arrived

    def target(self, name: str, index: str, entity_type: str | None = None) -> ComparedTarget:
        """Raises what is wrong before anything is walked: no such index, no way to walk PostgreSQL."""
        index_of = self.sides.naming.index_of
        known = [kind for kind in self.sides.source.types() if index_of(kind) == name]
        return ComparedTarget(
            name, index, tuple(k for k in known if entity_type in (None, k)), self.sides.prepare(index)
        )

    def all_of(self, target: ComparedTarget, entity_type: str | None = None) -> None:
        """Every entity, then every document. Documents of other types are left out when one is asked for."""
        for kind in target.types:
            self._walk_entities(target, kind)
        self._walked = 0
        self.sides.documents.refresh(target.index)
        self._walk_documents(target, self.sides.documents.scan(target.index), entity_type)
        self.doubts.drain()

    def entities_of(self, target: ComparedTarget, kind: str, low: str | None, high: str | None) -> None:
        """Those of one part. Its doubts are its own, and settled at its end."""
        self._walk_entities(target, kind, low, high)
        self.doubts.drain()

    def documents_of(self, target: ComparedTarget, place: Mapping[str, Any], entity_type: str | None) -> None:
        """The orphans of one slice of the index."""
        self._walk_documents(target, self.sides.documents.scan_slice(place), entity_type)
        self.doubts.drain()

    def _walk_entities(
        self, target: ComparedTarget, kind: str, low: str | None = None, high: str | None = None
    ) -> None:
        for keys in self._pages(kind, low, high):
            self._compare(target, keys, orphans=False)
            self._step("entities", len(keys), target)

    def _walk_documents(
        self, target: ComparedTarget, pages: Iterator[Sequence[HeldDocument]], entity_type: str | None
    ) -> None:
        for page in pages:
            self._find_orphans(target, page, entity_type)
            self._step("documents", len(page), target)

    def sample_of(
        self,
        target: ComparedTarget,
        number: int,
        seed: int | None = None,
        pivots: Callable[[str, int], Sequence[str]] = lambda *_: (),
    ) -> None:
        """A random sample of documents, and entities that follow `pivots`, keys from all over the table: so those that
        the index lacks are met too. Statistics may be older than the rows, so at least half of the places are ids of
        the index with one letter exchanged."""
        drawn = self.sides.documents.sample(target.index, number, seed or random.randrange(2**31))  # noqa: S311
        keys = list(dict.fromkeys(key for held in drawn if (key := self._key_of(target, held)) is not None))
        met = set(keys)
        for start in range(0, len(keys), PAGE):
            self._compare(target, keys[start : start + PAGE])
            self._step("sample", len(keys[start : start + PAGE]), target)
        for kind in target.types:
            ids = [key.entity_id for key in keys if key.entity_type == kind]
            places = max(1, number // SUCCESSORS // len(target.types))
            known = pivots(kind, (places + 1) // 2)
            for pivot in (*known, *_pivots(ids, max(1, places - len(known)))):
                following = {Key(kind, id) for id in self.sides.source.keys(kind, pivot, SUCCESSORS)} - met
                met |= following
                self._compare(target, list(following))
                self._step("sample", len(following), target)
        self.doubts.drain()

    def _pages(self, kind: str, after: str | None = None, until: str | None = None) -> Iterator[list[Key]]:
        while ids := self.sides.source.keys(kind, after, PAGE, until):
            yield [Key(kind, id) for id in ids]
            after = ids[-1]

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
                self.report.ahead += truth.version is not None and held.version > truth.version
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

    @property
    def walked(self) -> int:
        return self._walked

    def _certain(self, finding: DriftFinding) -> None:
        self.report.found(finding)
        self.on_finding(finding)

    def _in_flux(self, doubt: Mismatch) -> None:
        self.report.in_flux += 1
        self.report.unjudged += self.sides.stream is not None and bool(self.sides.stream.late)

    def _arrived(self) -> bool:
        """Before doubts are judged: the records that may have made them are settled."""
        mark = self.sides.stream
        if mark is None:
            return True
        passed = mark.passed(self._waiting)
        if mark.unknown:
            self.report.note(mark.unknown)
        if passed:
            return True
        self.report.note(f"{mark.late}; what may still change was not judged")
        return False

    def _waiting(self, remark: str) -> None:
        self.on_progress(Progress("Kafka", self._walked, self._walked, self.report.drift, remark))

    def _step(self, phase: str, n: int, target: ComparedTarget) -> None:
        self._walked += n
        self.doubts.advance()
        self.on_progress(Progress(phase, self._walked, target.estimate, self.report.drift))
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
