"""Notes where an index holds documents, so that whoever writes them next removes them from there. Deletes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox.placing import PlaceBook
from outbox.policy.audit import Actor
from outbox.policy.document import Naming
from outbox.policy.drift import HeldDocument, Key
from outbox.policy.event import HIGHEST_FOLLOWED
from outbox.policy.places import NotedPlace
from outbox.ports import Refusal
from outbox.reindex.copier import TOO_HIGH

if TYPE_CHECKING:
    from outbox.reindex.scan import ElasticScan


@dataclass(frozen=True, slots=True)
class HeldPlaces:
    documents: ElasticScan
    naming: Naming
    book: PlaceBook
    raise_version: Callable[[int, Actor], object]

    def note_all(self, types: Sequence[str], actor: Actor) -> Iterator[Sequence[Refusal]]:
        """Page by page: documents from before there were places are known then."""
        for index in sorted(set(map(self.naming.index_of, types))):
            own = tuple(kind for kind in types if self.naming.index_of(kind) == index)
            self.documents.refresh(index)
            for page in self.documents.scan(index):
                keys = [(key, held) for held in page for key in self.naming.keys_of(held.id, own)]
                yield self.note(index, [(key, held) for key, held in keys if key.entity_type in own], actor)

    def note(self, index: str, found: Sequence[tuple[Key, HeldDocument]], actor: Actor) -> Sequence[Refusal]:
        """Under the versions that the index holds; the sequence goes above them first, because the highest number of an
        entity is where its document stays. Answers those that are too high to be followed."""
        places = [NotedPlace(key, False, held.routing or "", held.version) for key, held in found]
        followed = [place for place in places if place.drawn <= HIGHEST_FOLLOWED]
        if followed:
            self.raise_version(max(place.drawn for place in followed), actor)
            self.book.note(followed)
        too_high = [place for place in places if place.drawn > HIGHEST_FOLLOWED]
        return [Refusal(index, self.naming.id_of(place.key), TOO_HIGH.format(place.drawn)) for place in too_high]
