"""What PostgreSQL says of an entity, what Elasticsearch holds, and which of the two is called drift. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from outbox.policy.lossless import Unreadable, differing, read_exact, same_exact

SHOWN: Final = 100  # of each kind, in a report


class Kind(StrEnum):
    """`unknown`: nobody can say whose document it is; it is never deleted."""

    MISSING = "missing"
    STALE = "stale"
    ORPHANED = "orphaned"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


DRIFT: Final = (Kind.MISSING, Kind.STALE, Kind.ORPHANED, Kind.DIFFERENT)


class Key(NamedTuple):
    entity_type: str
    entity_id: str


class Truth(NamedTuple):
    """An entity as PostgreSQL has it. No text: it is not there, or its document cannot be read (`failure`)."""

    key: Key
    text: str | None = None
    version: int | None = None  # None: the source names none
    routing: str | None = None
    failure: str | None = None
    size_bytes: int = 0  # of a document that is loaded on its own, because it is large
    foreign: str | None = None  # why nobody can say anything about this entity
    routed: bool = False  # the view says where its document lives


class HeldDocument(NamedTuple):
    """A document as Elasticsearch has it. `source` is parsed, exact; NO_SOURCE where the index keeps none."""

    id: str
    version: int
    routing: str | None = None
    source: Any = None


class _NoSource:
    def __repr__(self) -> str:
        return "no source"


NO_SOURCE: Final = _NoSource()


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """One document that is not as it should be. `failed`: an event that failed is the reason, and a replay the cure."""

    kind: Kind
    index: str
    id: str
    key: Key | None
    version: int | None = None
    held: int | None = None
    routing: str | None = None
    fields: tuple[str, ...] = ()
    why: str = ""
    failed: bool = False

    def as_json(self) -> dict[str, Any]:
        record = {
            "id": self.id,
            "entity_type": self.key.entity_type if self.key else None,
            "entity_id": self.key.entity_id if self.key else None,
            "version": self.version,
            "elasticsearch_version": self.held,
            "routing": self.routing,
            "fields": list(self.fields) or None,
            "why": self.why or None,
            "failed_event": self.failed or None,
        }
        return {name: value for name, value in record.items() if value is not None}


def judge(truth: Truth, held: HeldDocument | None) -> Kind | None:
    """The cases, in this order; None = as it should be.

    foreign            unknown, whatever it holds
    gone here          orphaned when it is there
    missing there      missing
    older there        stale, whatever it holds: later changes were lost
    other routing      different, where the view says the right one
    other content      different; a higher version with the right content is no drift (a repaired hand edit has one)
    """
    if truth.foreign is not None:
        return Kind.UNKNOWN if held is not None else None
    if truth.text is None:
        return None if held is None else Kind.ORPHANED
    if held is None:
        return Kind.MISSING
    if truth.version is not None and held.version < truth.version:
        return Kind.STALE
    if is_elsewhere(truth, held):
        return Kind.DIFFERENT
    if held.source is NO_SOURCE:
        return None
    return None if same_exact(_read(truth.text), held.source) else Kind.DIFFERENT


def fields_of(truth: Truth, held: HeldDocument | None) -> tuple[str, ...]:
    if held is None or truth.text is None:
        return ()
    place = ("_routing",) if is_elsewhere(truth, held) else ()
    return place if held.source is NO_SOURCE else (*place, *differing(_read(truth.text), held.source))


def is_elsewhere(truth: Truth, held: HeldDocument) -> bool:
    """Not where the view says; one that is gone should be nowhere."""
    return truth.routed and (truth.text is None or truth.routing != held.routing)


def seen_of(truth: Truth, held: HeldDocument | None) -> tuple[object, ...]:
    """What two checks must have in common before their verdict counts."""
    there = None if held is None else (held.version, held.routing, hash(repr(held.source)))
    return (truth.version, None if truth.text is None else hash(truth.text), there)


def _read(text: str) -> Any:
    try:
        return read_exact(text)
    except Unreadable:
        return Unreadable


@dataclass(slots=True)
class DriftReport:
    """Counts, and the first hundred of each kind: bounded, whatever is found."""

    compared: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    first: dict[Kind, list[DriftFinding]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    failed: int = 0
    unreadable: int = 0
    first_unreadable: list[dict[str, str]] = field(default_factory=list)
    in_flux: int = 0
    unjudged: int = 0  # of those in flux: nobody settled the records of Kafka that may concern them
    without_source: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def found(self, finding: DriftFinding) -> None:
        self.counts[finding.kind] += 1
        self.failed += finding.failed
        if len(self.first[finding.kind]) < SHOWN:
            self.first[finding.kind].append(finding)
        for name in finding.fields:
            self.count_field(name, 1)

    def count_field(self, name: str, number: int) -> None:
        if name in self.fields or len(self.fields) < SHOWN:
            self.fields[name] = self.fields.get(name, 0) + number

    def cannot_read(self, key: Key, why: str) -> None:
        self.unreadable += 1
        if len(self.first_unreadable) < SHOWN:
            self.first_unreadable.append({"entity_type": key.entity_type, "entity_id": key.entity_id, "why": why})

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def add(self, part: "DriftReport") -> None:
        """Counts are added; of each kind the first hundred stay, as in a comparison by one process."""
        for name in ("compared", "failed", "unreadable", "in_flux", "unjudged", "without_source"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for kind, number in part.counts.items():
            self.counts[kind] += number
            self.first[kind] += part.first[kind][: SHOWN - len(self.first[kind])]
        self.first_unreadable += part.first_unreadable[: SHOWN - len(self.first_unreadable)]
        for name, number in part.fields.items():
            self.count_field(name, number)
        for text in part.notes:
            self.note(text)

    @property
    def drift(self) -> int:
        return sum(self.counts[kind] for kind in DRIFT)

    @property
    def conclusive(self) -> bool:
        """False: something could not be judged, so that no drift is not yet a clean bill."""
        return not (self.unreadable or self.in_flux or self.counts[Kind.UNKNOWN])

    def shown(self) -> Iterator[DriftFinding]:
        for kind in Kind:
            yield from self.first[kind]

    def as_json(self) -> dict[str, Any]:
        return {
            "first": {kind.value: [finding.as_json() for finding in found] for kind, found in self.first.items()},
            "failed_events": self.failed,
            "unreadable": self.first_unreadable,
            "in_flux": self.in_flux,
            "without_source": self.without_source,
            "fields": dict(sorted(self.fields.items(), key=lambda pair: -pair[1])[:20]),
            "notes": self.notes,
        }
