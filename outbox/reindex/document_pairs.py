"""Reads the two sides of a comparison: PostgreSQL's truth of an entity and what the index holds. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from outbox.policy.document import Naming
from outbox.policy.drift import DriftFinding, HeldDocument, Key, Kind, Truth, fields_of, is_elsewhere, judge, seen_of
from outbox.reindex.mismatches import Mismatch, Recheck

if TYPE_CHECKING:
    from outbox.reindex.scan import ElasticScan
    from outbox.store.truth import PostgresTruth

PORTION_BYTES: Final = 4 * 1024 * 1024


class EventsOnTheWay(Protocol):
    """Events that neither the table nor the index has yet."""

    late: str  # why the last waiting was in vain
    unknown: str  # why some of them were not waited for

    def passed(self) -> bool:
        """Waits until all that is committed now is answered by the index, or a row. False: not in time."""
        ...


@dataclass(slots=True)
class DocumentPairs:
    source: PostgresTruth
    documents: ElasticScan
    naming: Naming
    routed: dict[str, bool] = field(default_factory=dict)
    primary: PostgresTruth | None = None  # where `source` is a replica: differences are judged by this one
    on_the_way: EventsOnTheWay | None = None  # where they come by Kafka
    remark: str = ""  # what limits all that is read

    def prepare(self, index: str) -> int:
        """How many documents there are. Raises where there is no such index; asks once whether routings are used."""
        self.documents.refresh(index)
        count = self.documents.count(index)
        self.routed[index] = self.documents.is_routed(index)
        return count

    @property
    def decisive(self) -> PostgresTruth:
        """A replica may lag behind both the primary and the index, so that what differs there need not be wrong."""
        return self.primary or self.source

    def both(
        self, index: str, keys: Sequence[Key], source: PostgresTruth | None = None
    ) -> Iterator[tuple[Truth, Sequence[HeldDocument]]]:
        """PostgreSQL first: a change in between shows as a document that is newer, never as one that is lost."""
        asked = source or self.source
        for portion in self._portions(asked.load(keys), asked):
            ids = [self.naming.id_of(truth.key) for truth in portion]
            found = self.documents.held(index, ids, routed=self.routed.get(index, False))
            for id, truth in zip(ids, portion, strict=True):
                yield truth, sorted(found.get(id, ()), key=partial(_order, truth))

    def _portions(self, truths: Iterable[Truth], source: PostgresTruth) -> Iterator[list[Truth]]:
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


def _order(truth: Truth, held: HeldDocument) -> tuple[bool, int]:
    """The document that should be there comes first: that under the view's routing, else the newest."""
    return is_elsewhere(truth, held), -held.version


def _recheck(
    doubt: Mismatch, truth: Truth, found: Sequence[HeldDocument], is_open: bool, failed: Mapping[Key, int]
) -> Recheck:
    if doubt.extra:  # one `_id` under two routings: the second document is the one too many
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
