"""Which document an event means, and which events are refused before anything is sent. Reads one byte of a payload."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add, itemgetter
from typing import Final, NamedTuple, cast

from outbox.policy.event import DELETE, OPS, REFRESH, Event
from outbox.policy.outcome import Code, Failure, Reason
from outbox.policy.redact import fingerprint

MAX_ID_BYTES: Final = 512  # Elasticsearch refuses the whole request for one longer id
MAX_TYPE_BYTES: Final = 512  # also where it is no part of the document's id: a name, and in indexes
MAX_ROUTING_BYTES: Final = 2048  # Elasticsearch has no limit of its own; a claim cuts what is far longer
LARGEST_CHARACTER: Final = 4  # bytes
CUT_AT: Final = 2400  # characters, by the claim: it may have been longer
_WHITE: Final = b" \t\r\n"


class Address(NamedTuple):
    """Where a document lives. Routing belongs to it: one `_id` under two routings is two documents."""

    index: str  # type: ignore[assignment]
    id: str
    routing: str | None


# `Address(...)` without its frame in Python.
_address: Final = cast(Callable[[tuple[str, str, str | None]], Address], partial(tuple.__new__, Address))

_OP, _VERSION, _PAYLOAD, _SIZE = (
    itemgetter(Event._fields.index(name)) for name in ("op", "event_version", "payload", "payload_bytes")
)

_OPS_WITH_PAYLOAD: Final = OPS - {DELETE, REFRESH}

Parts = tuple[str, str, int, str | None, bytes]  # index, id, version, routing, body


@dataclass(frozen=True, slots=True)
class Sendable:
    """Events that may be sent, and where the document of each lives: columns of one length."""

    events: Sequence[Event]
    indexes: Sequence[str]
    ids: Sequence[str]
    routings: Sequence[str | None]

    def addressed(self) -> list[tuple[Address, Event]]:
        addresses = map(_address, zip(self.indexes, self.ids, self.routings, strict=True))
        return list(zip(addresses, self.events, strict=True))

    def plain(self) -> list[Parts] | None:
        """As they are to be sent, where all are upserts with their payload at hand, each of a document of its own; as
        nearly every batch is. None: someone must be looked at by itself."""
        payloads = list(map(_PAYLOAD, self.events))
        if None in payloads or not _OPS_WITH_PAYLOAD.issuperset(map(_OP, self.events)):
            return None
        if not self._distinct():
            return None
        return self.parts(map(_VERSION, self.events), payloads)

    def parts(self, versions: Iterable[int], bodies: Iterable[bytes]) -> list[Parts]:
        return list(zip(self.indexes, self.ids, versions, self.routings, bodies, strict=True))

    def in_view(self) -> bool:
        """Whether the document of each is in the view, and one of its own."""
        payload_sizes = list(map(_SIZE, self.events))
        only_lookups = payload_sizes.count(None) == len(payload_sizes) and DELETE not in map(_OP, self.events)
        return only_lookups and self._distinct()

    def _distinct(self) -> bool:
        if len(set(self.ids)) == len(self.ids):
            return True
        return len(set(zip(self.indexes, self.ids, self.routings, strict=True))) == len(self.events)


@dataclass(frozen=True, slots=True)
class Addressing:
    """`composed`: `entity_type:entity_id`, the default; otherwise the entity id alone."""

    composed: bool
    index_of: Callable[[str], str]

    def address(self, event: Event) -> Address:
        id = f"{event.entity_type}:{event.entity_id}" if self.composed else event.entity_id
        return Address(self.index_of(event.entity_type), id, event.routing)

    def sort_out(self, events: Sequence[Event]) -> tuple[Sendable, list[tuple[Event, Failure]]]:
        """A whole batch: where each event's document lives, and which events are refused. Nearly always none is, which
        a few looks in C at whole columns can tell; else each event is asked."""
        if not events:
            return Sendable((), (), (), ()), []
        _, _, kinds, ids, ops, versions, payloads, sizes, routings, *_ = zip(*events, strict=True)
        indexes, prefixes = self._homes(frozenset(kinds))
        names = list(map(add, map(prefixes.__getitem__, kinds), ids))
        if self._none_refused(frozenset(kinds), ids, ops, versions, payloads, sizes, names, routings):
            return Sendable(events, list(map(indexes.__getitem__, kinds)), names, routings), []
        asked = [(event, self.refusal(event)) for event in events]
        good = [event for event, failure in asked if failure is None]
        homes = [self.address(event) for event in good]
        sendable = Sendable(good, [a.index for a in homes], [a.id for a in homes], [a.routing for a in homes])
        return sendable, [(event, failure) for event, failure in asked if failure is not None]

    def _homes(self, entity_types: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The index of each type, and what stands before its ids."""
        indexes = {kind: self.index_of(kind) for kind in entity_types}
        return indexes, {kind: f"{kind}:" if self.composed else "" for kind in entity_types}

    def _none_refused(
        self,
        entity_types: frozenset[str],
        ids: Sequence[str],
        ops: Sequence[str],
        versions: Sequence[int],
        payloads: Sequence[bytes | None],
        payload_sizes: Sequence[int | None],
        names: Sequence[str],
        routings: Sequence[str | None],
    ) -> bool:
        """True: `refusal` has nothing against any of them. False says only that one must be looked at by itself."""
        return (
            OPS.issuperset(ops)
            and min(versions) >= 0
            and "" not in ids
            and not (self.composed and any(":" in kind for kind in entity_types))
            and max(map(len, map(str.encode, names))) <= MAX_ID_BYTES
            and max(map(len, entity_types)) <= MAX_TYPE_BYTES // LARGEST_CHARACTER
            and max(map(len, filter(None, routings)), default=0) <= MAX_ROUTING_BYTES // LARGEST_CHARACTER
            and False not in [payload is None or payload.startswith(b"{") for payload in payloads]
            and (REFRESH not in ops or not any(map(_is_refresh_with_payload, ops, payload_sizes)))
        )

    def refusal(self, event: Event) -> Failure | None:
        """Why this event can never be sent, or None. The cases: op, version, names, payload."""
        if event.op not in OPS:
            return refused(f"ValueError: Unknown outbox op: {event.op[:80]!r}", Code.PAYLOAD_UNSUPPORTED)
        if event.event_version < 0:
            return refused("event_version is below 0; versions start at 0", Code.PRECONDITION_FAILED)
        return self._bad_id(event) or _bad_names(event) or _bad_payload(event)

    def _bad_id(self, event: Event) -> Failure | None:
        if not event.entity_id:
            return refused("entity_id is empty; every document needs an id", Code.PRECONDITION_FAILED)
        if self.composed and ":" in event.entity_type:
            return refused(
                "entity_type holds ':', which would make two entities share one document id",
                Code.PRECONDITION_FAILED,
            )
        size = len(event.entity_id.encode()) + (len(event.entity_type.encode()) + 1 if self.composed else 0)
        if size > MAX_ID_BYTES:
            or_more = " or more" if size >= CUT_AT else ""
            return refused(
                f"the document id is {size} bytes{or_more}; Elasticsearch takes {MAX_ID_BYTES}",
                Code.PRECONDITION_FAILED,
            )
        return None


def _bad_names(event: Event) -> Failure | None:
    if len(event.entity_type.encode()) > MAX_TYPE_BYTES:
        return refused(f"entity_type has over {MAX_TYPE_BYTES} bytes", Code.PRECONDITION_FAILED)
    if event.routing is not None and len(event.routing.encode()) > MAX_ROUTING_BYTES:
        return refused(f"routing has over {MAX_ROUTING_BYTES} bytes", Code.PRECONDITION_FAILED)
    return None


def _is_refresh_with_payload(op: str, payload_bytes: int | None) -> bool:
    return op == REFRESH and payload_bytes is not None


def _bad_payload(event: Event) -> Failure | None:
    if _is_refresh_with_payload(event.op, event.payload_bytes):
        return refused(
            "a refresh has a payload; its document is read from the view: use the op upsert", Code.PAYLOAD_UNSUPPORTED
        )
    payload = event.payload
    if payload is None or event.op == DELETE or payload[:1] == b"{":
        return None
    return not_an_object(payload)


def not_an_object(payload: bytes) -> Failure | None:
    """PostgreSQL has checked that it is JSON; only its first byte can say that it is no object."""
    if payload.lstrip(_WHITE)[:1] == b"{":
        return None
    return refused("the payload is not a JSON object", Code.PAYLOAD_INVALID)


def refused(error: str, code: Code) -> Failure:
    return Failure(Reason.DETERMINISTIC, error, code, fingerprint(Reason.DETERMINISTIC, error))
