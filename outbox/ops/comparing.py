"""Walks PostgreSQL in key order and the index by a point in time, and says what differs. Writes nothing.

Memory is bounded: a page of documents, some thousand doubts without their bodies, and a report of counts.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from outbox.ops.doubts import Doubt, Doubts
from outbox.ops.pace import Pace
from outbox.ops.sides import Sides
from outbox.policy.drift import NO_SOURCE, Finding, Held, Key, Kind, Report, Truth, judge, look_of

PAGE: Final = 500
SUCCESSORS: Final = 4  # of each place drawn by lot: so entities that the index lacks are met too
NOT_OURS: Final = "no event of this projection could have made such an id"


@dataclass(frozen=True, slots=True)
class Target:
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


@dataclass(slots=True)
class Comparing:
    sides: Sides
    pace: Pace
    report: Report
    on_progress: Callable[[Progress], None] = lambda _: None
    on_finding: Callable[[Finding], None] = lambda _: None
    doubts: Doubts = field(init=False)
    _walked: int = 0

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.sides.look_again, self._certain, self._in_flux)

    def target(self, name: str, index: str, entity_type: str | None = None) -> Target:
        """Raises what is wrong before anything is walked: no such index, no way to walk PostgreSQL."""
        index_of = self.sides.naming.index_of
        known = [kind for kind in self.sides.source.types() if index_of(kind) == name]
        return Target(name, index, tuple(k for k in known if entity_type in (None, k)), self.sides.prepare(index))

    def all_of(self, target: Target, entity_type: str | None = None) -> None:
        """Every entity, then every document. Documents of other types are left out when one is asked for."""
        for kind in target.types:
            for keys in self._pages(kind):
                self._compare(target, keys, orphans=False)
                self._step("entities", len(keys), target)
        self._walked = 0
        self.sides.documents.refresh(target.index)
        for page in self.sides.documents.scan(target.index):
            self._look_for_orphans(target, page, entity_type)
            self._step("documents", len(page), target)
        self.doubts.drain()

    def sample_of(self, target: Target, number: int, seed: int | None = None) -> None:
        """Documents by lot, and the entities that follow some of them in key order."""
        drawn = self.sides.documents.sample(target.index, number, seed or random.randrange(2**31))  # noqa: S311
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

    def _pages(self, kind: str) -> Iterator[list[Key]]:
        after: str | None = None
        while ids := self.sides.source.keys(kind, after, PAGE):
            yield [Key(kind, id) for id in ids]
            after = ids[-1]

    # One page

    def _compare(self, target: Target, keys: Sequence[Key], *, orphans: bool = True) -> None:
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

    def _look_for_orphans(self, target: Target, page: Sequence[Held], entity_type: str | None) -> None:
        """A document that PostgreSQL does not have is doubted."""
        meant = {held.id: (key, held) for held in page if (key := self._key_of(target, held, entity_type)) is not None}
        present = self.sides.source.present([key for key, _ in meant.values()])
        for key, held in meant.values():
            if key not in present:
                self._doubt(target.index, Truth(key), held)

    def _key_of(self, target: Target, held: Held, entity_type: str | None = None) -> Key | None:
        """The entity that a document means. None: of another type than asked for, or unknown, and told as such."""
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
            self._certain(Finding(Kind.UNKNOWN, target.index, held.id, key, None, held.version, held.routing, why=why))
        return None

    def _doubt(self, index: str, truth: Truth, held: Held | None, *, extra: bool = False) -> None:
        id = self.sides.naming.id_of(truth.key)
        # An orphan was seen without its source: its second look is the first that counts.
        seen = look_of(truth, held) if truth.text is not None else ()
        too_many = held.routing if extra and held is not None else None
        self.doubts.add(Doubt(index, id, truth.key, seen, self.doubts.clock(), extra, too_many))

    def _certain(self, finding: Finding) -> None:
        self.report.found(finding)
        self.on_finding(finding)

    def _in_flux(self, doubt: Doubt) -> None:
        self.report.in_flux += 1

    def _step(self, phase: str, n: int, target: Target) -> None:
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
