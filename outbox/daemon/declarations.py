"""What a worker knows of declared entity types: for each batch, which types the view keeps. Sends nothing.

The claim tells the revision, so what is known here is as new as the claim, and a settle under another revision changes
nothing. Records have no such claim: what is known of their types is at most a second old.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from outbox.errors import DatabaseDown, DocumentsUnavailable
from outbox.policy.entity_type import EntityType, KeptBy, declared_by, first_written, other_sort
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Failure
from outbox.ports import Clock, DocumentSource

FRESH_SECONDS: Final = 1.0
TAKE_BACK_SECONDS: Final = 10.0
MOST_KNOWN: Final = 10_000  # types that are remembered beside those of the batch
_SIZE: Final = itemgetter(Event._fields.index("payload_bytes"))


class TypeStore(Protocol):
    def read(self, types: Sequence[str]) -> tuple[int, Mapping[str, EntityType]]: ...
    def declare(self, types: Mapping[str, EntityType], by: str) -> None: ...
    def take_back(self, types: Sequence[str], by: str) -> None: ...


class Sorted(NamedTuple):
    """Of a batch. `viewed`: the types that the view keeps. `undeclared`: types of which it has deletes only. `wrong`:
    events of the other sort. `waiting`: of new types, while the view cannot be asked. `first`: declared by its events
    alone, not by rows of the view."""

    viewed: frozenset[str]
    undeclared: frozenset[str] = frozenset()
    wrong: Sequence[tuple[Event, Failure]] = ()
    waiting: Sequence[Event] = ()
    away: DocumentsUnavailable | None = None
    first: frozenset[str] = frozenset()
    all_viewed: bool = False


@dataclass(slots=True)
class Declarations:
    """Lanes share it: what belongs together is exchanged as one."""

    store: TypeStore
    documents: DocumentSource
    last_version: Callable[[], int]
    worker: str
    clock: Clock
    _known: tuple[int, Mapping[str, EntityType], float] = (-1, {}, float("-inf"))
    _refused: set[str] = field(default_factory=set)
    _next_take_back: float = float("-inf")

    def sort(self, events: Sequence[Event]) -> Sorted:
        """Nearly always: all types are known, and no event is of the other sort."""
        types: Set[str] = {event.entity_type for event in events}
        known = self._at(events[0].revision, types) if events else {}
        new: Set[str] = types - known.keys()
        waiting, away = list[Event](), None
        if new:
            try:
                known, new = self._declare(new, types, events)
            except DocumentsUnavailable as error:
                waiting, away = [event for event in events if event.entity_type in new], error
                types = types - new
        viewed = frozenset(kind for kind in types if kind in known and known[kind].kept_by is KeptBy.VIEW)
        all_viewed = bool(viewed) and viewed == types
        wrong = () if _is_one_sort(events, viewed, all_viewed=all_viewed) else _wrong(events, types, known)
        first = frozenset(new & known.keys())
        return Sorted(viewed, frozenset(types - known.keys()), wrong, waiting, away, first, all_viewed)

    def declared_meanwhile(self, types: Set[str]) -> bool:
        """Whether somebody keeps one of these types, which nobody kept when they were sorted: a first event raises no
        revision, and what it wrote may be what these deletes removed."""
        return bool(types) and not types.isdisjoint(self.store.read(sorted(types))[1])

    def take_back(self, refused: Iterable[str] = ()) -> None:
        """After each batch: declarations by events that were all refused. For each, every batch in flight is done
        again, so not whenever such an event comes."""
        self._refused |= set(refused)
        if self._refused and self.clock() >= self._next_take_back:
            types, self._refused = self._refused, set()
            self._next_take_back = self.clock() + TAKE_BACK_SECONDS
            self.store.take_back(sorted(types), self.worker)

    def _at(self, revision: int, types: Set[str]) -> Mapping[str, EntityType]:
        """What is remembered, if it is of that revision and all of these types are in it; else what is read."""
        known_revision, known, at = self._known
        holds = revision == known_revision if revision else self.clock() - at <= FRESH_SECONDS
        if holds and types <= known.keys():
            return known
        try:
            return self._read(types, holds=holds)
        except DatabaseDown:
            if revision or not types <= known.keys():
                raise
            return known  # records go on while the database is down

    def _read(self, types: Set[str], *, holds: bool = True) -> Mapping[str, EntityType]:
        """One statement for all types of a batch. What was remembered stays while it `holds`, up to a limit."""
        now = self.clock()
        revision, found = self.store.read(sorted(types))
        known_revision, known, at = self._known
        if holds and revision == known_revision and len(known) < MOST_KNOWN:
            self._known = (revision, {**known, **found}, at)
        else:
            self._known = (revision, found, now)
        return self._known[1]

    def _declare(
        self, new: Set[str], types: Set[str], events: Sequence[Event]
    ) -> tuple[Mapping[str, EntityType], Set[str]]:
        """What holds, and which of it events alone have declared. Another worker, or `outbox attach`, may have been
        faster: it is read back before anything is sent."""
        own: dict[str, list[Event]] = {kind: [] for kind in new}
        for event in events:
            if event.entity_type in own:
                own[event.entity_type].append(event)
        has_view = self.documents.exists()
        # A type that begins with a lookup is the view's anyway: no row of it need be asked for.
        doubted = sorted(kind for kind in new if has_view and not _begins_with_lookup(own[kind]))
        in_view = self.documents.types_in_view(doubted) if doubted else set[str]()
        last_version = self.last_version()
        found = {
            kind: declared_by(events, in_view=kind in in_view, has_view=has_view, last_version=last_version)
            for kind, events in own.items()
        }
        declared = {kind: about for kind, about in found.items() if about is not None}
        if declared:
            self.store.declare(declared, self.worker)
        return self._read(types), declared.keys() - in_view


def _begins_with_lookup(events: Sequence[Event]) -> bool:
    first = first_written(events)
    return first is not None and first.payload_bytes is None


def _is_one_sort(events: Sequence[Event], viewed: Container[str], *, all_viewed: bool) -> bool:
    """All lookups, or all with a payload but for deletes: what nearly every batch is, found at C speed."""
    without = list(map(_SIZE, events)).count(None)
    if all_viewed:
        return without == len(events)
    deletes = sum(event.op == DELETE and event.payload_bytes is None for event in events) if without else 0
    return not viewed and without == deletes


def _wrong(
    events: Sequence[Event], types: Container[str], known: Mapping[str, EntityType]
) -> list[tuple[Event, Failure]]:
    judged = [event for event in events if event.entity_type in types]
    return [(event, failure) for event in judged if (failure := other_sort(event, known.get(event.entity_type)))]
