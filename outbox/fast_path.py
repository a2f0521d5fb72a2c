"""The fast path: what nearly every batch is, decided over whole columns instead of event by event. Sends nothing.

Each function stands for a plain rule and gives the same answer, or none; then the plain rule is asked. Property tests
hold each pair together (tests/unit/test_fast_path.py, and whole batches in tests/unit/daemon/test_projector.py).

    here            the plain rule
    sort_out        Naming.refusal and Naming.address of each event
    from_payloads   coalesce, then Bodies.delivery of each document
    is_lookup       other_sort of each event of types that the view keeps, then coalesce
    from_view       the same as from_payloads, for documents that were just looked up
    all_written     each outcome is `Written`

Two shortcuts are where their plain rule is, and tested here too: `Portion.settle` for `Judge.accepted`, and
`store.events._is_plain` for a row of verdicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat, starmap
from operator import add, is_, itemgetter
from typing import Final
from uuid import UUID

from outbox.policy.document import (
    MAX_ID_BYTES,
    MAX_ROUTING_BYTES,
    MAX_TYPE_BYTES,
    Address,
    Naming,
    is_refresh_with_payload,
)
from outbox.policy.event import DELETE, OPS, REFRESH, Event
from outbox.policy.outcome import WRITTEN, Failure, Outcome
from outbox.ports import Document

Parts = tuple[str, str, int, str | None, bytes]  # index, id, version, routing, body

_ID, _OP, _VERSION, _PAYLOAD, _SIZE = (
    itemgetter(Event._fields.index(name)) for name in ("id", "op", "event_version", "payload", "payload_bytes")
)
_OPS_WITH_PAYLOAD: Final = OPS - {DELETE, REFRESH}
_LARGEST_CHARACTER: Final = 4  # bytes
EMPTY_BYTES: Final = 200  # what an action without a body weighs


@dataclass(frozen=True, slots=True)
class Sendable:
    """Events that may be sent, and where the document of each lives: columns of one length."""

    events: Sequence[Event]
    indexes: Sequence[str]
    ids: Sequence[str]
    routings: Sequence[str | None]

    def addressed(self) -> list[tuple[Address, Event]]:
        addresses = starmap(Address, zip(self.indexes, self.ids, self.routings, strict=True))
        return list(zip(addresses, self.events, strict=True))

    def only(self, chosen: Sequence[bool]) -> "Sendable":
        columns = (self.events, self.indexes, self.ids, self.routings)
        return Sendable(*(list(compress(column, chosen)) for column in columns))  # type: ignore[arg-type]

    def parts(self, versions: Iterable[int], bodies: Iterable[bytes]) -> list[Parts]:
        return list(zip(self.indexes, self.ids, versions, self.routings, bodies, strict=True))

    def is_distinct(self) -> bool:
        """Each event has a document of its own."""
        if len(set(self.ids)) == len(self.ids):
            return True
        return len(set(zip(self.indexes, self.ids, self.routings, strict=True))) == len(self.events)


# Where the documents live, and who is refused


def sort_out(naming: Naming, events: Sequence[Event]) -> tuple[Sendable, list[tuple[Event, Failure]]]:
    """A whole batch: where each event's document lives, and which events are refused. Nearly always none is."""
    if not events:
        return Sendable((), (), (), ()), []
    _, _, kinds, ids, ops, versions, payloads, sizes, routings, *_ = zip(*events, strict=True)
    types = frozenset(kinds)
    indexes = {kind: naming.index_of(kind) for kind in types}
    prefixes = {kind: f"{kind}:" if naming.composed else "" for kind in types}
    names = list(map(add, map(prefixes.__getitem__, kinds), ids))
    none_refused = (
        OPS.issuperset(ops)
        and min(versions) >= 0
        and "" not in ids
        and not (naming.composed and any(":" in kind for kind in types))
        and max(map(len, map(str.encode, names))) <= MAX_ID_BYTES
        and max(map(len, types)) <= MAX_TYPE_BYTES // _LARGEST_CHARACTER
        and max(map(len, filter(None, routings)), default=0) <= MAX_ROUTING_BYTES // _LARGEST_CHARACTER
        and False not in [payload is None or payload.startswith(b"{") for payload in payloads]
        and (REFRESH not in ops or not any(map(is_refresh_with_payload, ops, sizes)))
    )
    if none_refused:
        return Sendable(events, list(map(indexes.__getitem__, kinds)), names, routings), []
    return _one_by_one(naming, events)


def _one_by_one(naming: Naming, events: Sequence[Event]) -> tuple[Sendable, list[tuple[Event, Failure]]]:
    checked = [(event, naming.refusal(event)) for event in events]
    good = [event for event, failure in checked if failure is None]
    homes = [naming.address(event.entity_type, event.entity_id, event.routing) for event in good]
    sendable = Sendable(good, [a.index for a in homes], [a.id for a in homes], [a.routing for a in homes])
    return sendable, [(event, failure) for event, failure in checked if failure is not None]


# What is sent


def from_payloads(sendable: Sendable, most_bytes: int) -> list[Parts] | None:
    """None: a payload is not at hand, an event is no upsert or not alone with its document, or all are too large."""
    payloads = list(map(_PAYLOAD, sendable.events))
    if not payloads or None in payloads or not _OPS_WITH_PAYLOAD.issuperset(map(_OP, sendable.events)):
        return None
    if not fits(list(map(len, payloads)), most_bytes) or not sendable.is_distinct():
        return None
    return sendable.parts(map(_VERSION, sendable.events), payloads)


def is_lookup(sendable: Sendable) -> bool:
    """Whether each, of types that the view keeps, has a document of its own, and nothing but the view says of it."""
    sizes, routings = list(map(_SIZE, sendable.events)), sendable.routings
    return sizes.count(None) == routings.count(None) == len(sizes) and sendable.is_distinct()


def from_view(sendable: Sendable, found: Mapping[UUID, Document], version: int, most_bytes: int) -> list[Parts] | None:
    """What was just looked up, under the version drawn. None: one is not there, is large, or has its own place."""
    if not found or not all(map(is_, map(_ID, sendable.events), found)):
        return None
    bodies, sizes, _, failures, _, routed = zip(*found.values(), strict=True)
    if failures.count(None) < len(bodies) or any(routed) or None in bodies or not fits(sizes, most_bytes):
        return None
    return sendable.parts(repeat(version, len(bodies)), bodies)


def fits(sizes: Sequence[int], most_bytes: int) -> bool:
    return sum(sizes) + EMPTY_BYTES * len(sizes) <= most_bytes


def all_written(outcomes: Sequence[Outcome]) -> bool:
    """What nearly every request comes to. `count` compares by identity first: 0.01 us each."""
    return outcomes.count(WRITTEN) == len(outcomes)
