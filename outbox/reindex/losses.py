"""Finds documents that an old index holds, a new one lacks, and no truth explains. Writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from outbox.policy.drift import Key, Truth
from outbox.reindex.document_pairs import DocumentPairs
from outbox.reindex.pacing import JobPace

SHOWN: Final = 20
NO_TYPE: Final = "of no entity type"


@dataclass(slots=True)
class Losses:
    by_type: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.by_type.values())

    @property
    def sentence(self) -> str:
        types = ", ".join(f"{number:,} {kind}" for kind, number in sorted(self.by_type.items()))
        return f"{self.count:,} documents would be lost ({types}): {', '.join(self.first)}"

    def add(self, id: str, entity_type: str) -> None:
        self.by_type[entity_type] = self.by_type.get(entity_type, 0) + 1
        if len(self.first) < SHOWN:
            self.first.append(id)


@dataclass(slots=True)
class LossSearch:
    """Between two indexes of one target, both written to by the projectors."""

    sides: DocumentPairs
    target: str
    pace: JobPace
    on_page: Callable[[int], None]
    losses: Losses = field(default_factory=Losses)

    def run(self, old: str, new: str) -> Losses:
        documents, walked = self.sides.documents, 0
        documents.refresh(old)
        documents.refresh(new)
        routed = documents.is_routed(new)
        for page in documents.scan(old):
            ids = {held.id for held in page}
            self._judge(sorted(ids - documents.known(new, sorted(ids), routed=routed)))
            walked += len(page)
            self.on_page(walked)
            self.pace.took(len(page))
        return self.losses

    def _judge(self, lacking: Sequence[str]) -> None:
        naming, source = self.sides.naming, self.sides.source
        types = tuple(kind for kind in source.types() if naming.index_of(kind) == self.target)
        meant = {id: naming.keys_of(id, types) for id in lacking}
        keys = list({key for each in meant.values() for key in each if naming.index_of(key.entity_type) == self.target})
        truths = {truth.key: truth for truth in source.load(keys)} if keys else {}
        failed = source.failed_of(keys) if keys else {}
        for id, each in meant.items():
            if not each or not _is_explained([truths.get(key) for key in each], failed):
                self.losses.add(id, each[0].entity_type if each else NO_TYPE)


def _is_explained(truths: Sequence[Truth | None], failed: Mapping[Key, int]) -> bool:
    """Who is there is missing in the new index: the comparison counts it, unless its event failed. Otherwise each
    entity that the id may mean must be known to be gone."""
    known = [truth for truth in truths if truth is not None and truth.failure is None and truth.foreign is None]
    there = [truth for truth in known if truth.text is not None or truth.size_bytes]
    return any(truth.key not in failed for truth in there) or (not there and len(known) == len(truths))
