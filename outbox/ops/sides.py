"""Reads the two sides of a comparison together, a portion at a time: PostgreSQL's word and Elasticsearch's documents.

Says what a later look at a doubted document finds. Walks nothing and writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from outbox.ops.doubts import Doubt, Look
from outbox.policy.drift import Finding, Held, Key, Kind, Truth, fields_of, judge, look_of
from outbox.policy.naming import Naming

PORTION_BYTES: Final = 4 * 1024 * 1024


class Source(Protocol):
    """PostgreSQL's side. Every call is a short snapshot of its own."""

    def types(self) -> Sequence[str]: ...
    def types_out_of_sight(self) -> Sequence[str]: ...
    def keys(self, entity_type: str, after: str | None, limit: int) -> Sequence[str]: ...
    def present(self, keys: Sequence[Key]) -> frozenset[Key]: ...
    def load(self, keys: Sequence[Key], *, whole: bool = False) -> Sequence[Truth]: ...
    def backlog_waits(self) -> bool: ...
    def open_of(self, keys: Sequence[Key]) -> frozenset[Key]: ...
    def failed_of(self, keys: Sequence[Key]) -> Mapping[Key, int]: ...


class Documents(Protocol):
    """Elasticsearch's side."""

    def count(self, index: str) -> int: ...
    def refresh(self, index: str) -> None: ...
    def is_routed(self, index: str) -> bool: ...
    def held(self, index: str, ids: Sequence[str], *, routed: bool = False) -> Mapping[str, Sequence[Held]]: ...
    def scan(self, index: str) -> Iterator[Sequence[Held]]: ...
    def sample(self, index: str, number: int, seed: int) -> Sequence[Held]: ...


@dataclass(slots=True)
class Sides:
    source: Source
    documents: Documents
    naming: Naming
    routed: dict[str, bool] = field(default_factory=dict)

    def prepare(self, index: str) -> int:
        """How many documents there are. Raises where there is no such index; asks once whether routings are used."""
        self.documents.refresh(index)
        count = self.documents.count(index)
        self.routed[index] = self.documents.is_routed(index)
        return count

    def both(self, index: str, keys: Sequence[Key]) -> Iterator[tuple[Truth, Sequence[Held]]]:
        """PostgreSQL first: a change in between shows as a document that is newer, never as one that is lost."""
        for portion in self._portions(self.source.load(keys)):
            ids = [self.naming.id_of(truth.key) for truth in portion]
            found = self.documents.held(index, ids, routed=self.routed.get(index, False))
            for id, truth in zip(ids, portion, strict=True):
                yield truth, sorted(found.get(id, ()), key=lambda held: -held.version)

    def _portions(self, truths: Iterable[Truth]) -> Iterator[list[Truth]]:
        """What can be held in memory together with its other half; a large document is loaded alone."""
        portion: list[Truth] = []
        weight = 0
        for truth in truths:
            if truth.size_bytes:
                yield list(self.source.load([truth.key], whole=True))
                continue
            size = len(truth.text or "")
            if portion and weight + size > PORTION_BYTES:
                yield portion
                portion, weight = [], 0
            portion.append(truth)
            weight += size
        if portion:
            yield portion

    # Later looks

    def look_again(self, doubts: Sequence[Doubt]) -> list[Look]:
        """Open events first: whatever was committed before that and is not open any more has been projected."""
        keys = list(dict.fromkeys(doubt.key for doubt in doubts))
        open_now = self.source.open_of(keys)
        seen: dict[tuple[str, Key], tuple[Truth, Sequence[Held]]] = {}
        for index in {doubt.index for doubt in doubts}:
            if self.routed.get(index):
                self.documents.refresh(index)
            asked = [doubt.key for doubt in doubts if doubt.index == index]
            seen.update({(index, truth.key): (truth, held) for truth, held in self.both(index, asked)})
        failed = self.source.failed_of(keys)
        return [_look(doubt, *seen[doubt.index, doubt.key], doubt.key in open_now, failed) for doubt in doubts]


def _look(doubt: Doubt, truth: Truth, found: Sequence[Held], is_open: bool, failed: Mapping[Key, int]) -> Look:
    if doubt.extra:  # one `_id` under two routings: the older document is the one too many
        truth, found = Truth(doubt.key), [held for held in found[1:] if held.routing == doubt.routing]
    held = found[0] if found else None
    kind = None if truth.failure is not None else judge(truth, held)
    seen = look_of(truth, held)
    if kind is None:
        return Look(seen, None)
    finding = Finding(
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
    return Look(seen, finding, is_open)
