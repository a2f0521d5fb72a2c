"""Which document an event means, and which events are refused before anything is sent. Reads one byte of a payload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast

from outbox.policy.event import DELETE, OPS, UPSERT, Event
from outbox.policy.outcome import Code, Failure, Reason
from outbox.policy.redact import fingerprint

MAX_ID_BYTES: Final = 512  # Elasticsearch refuses the whole request for one longer id
_WHITE: Final = b" \t\r\n"


class Address(NamedTuple):
    """Where a document lives. Routing belongs to it: one `_id` under two routings is two documents."""

    index: str  # type: ignore[assignment]
    id: str
    routing: str | None


# `Address(...)` without its frame in Python.
_address: Final = cast(Callable[[tuple[str, str, str | None]], Address], partial(tuple.__new__, Address))


@dataclass(frozen=True, slots=True)
class Addressing:
    """`composed`: `entity_type:entity_id`, the default; otherwise the entity id alone."""

    composed: bool
    index_of: Callable[[str], str]

    def address(self, event: Event) -> Address:
        id = f"{event.entity_type}:{event.entity_id}" if self.composed else event.entity_id
        return Address(self.index_of(event.entity_type), id, event.routing)

    def sort_out(self, events: Sequence[Event]) -> tuple[list[tuple[Address, Event]], list[tuple[Event, Failure]]]:
        """A whole batch: where each event's document lives, and which events are refused. Three looks tell a plain
        upsert, and a type is looked up once (0.6 us an event); whatever is not plain goes the long way."""
        sendable: list[tuple[Address, Event]] = []
        bad: list[tuple[Event, Failure]] = []
        homes: dict[str, tuple[str, str, int]] = {}
        for event in events:
            kind, id, op, version, payload, _, routing = event[2:9]
            home = homes.get(kind)
            if home is None:
                home = homes[kind] = self._home(kind)
            index, prefix, most = home
            plain = op == UPSERT and version >= 0 and payload is not None and payload.startswith(b"{")
            if plain and 0 < len(id) <= most and id.isascii():
                sendable.append((_address((index, prefix + id, routing)), event))
            elif failure := self.refusal(event):
                bad.append((event, failure))
            else:
                sendable.append((self.address(event), event))
        return sendable, bad

    def _home(self, entity_type: str) -> tuple[str, str, int]:
        """Its index, what stands before its ids, and the longest plain id (0: none is plain)."""
        if not self.composed:
            return self.index_of(entity_type), "", MAX_ID_BYTES
        most = 0 if ":" in entity_type else MAX_ID_BYTES - 1 - len(entity_type.encode())
        return self.index_of(entity_type), f"{entity_type}:", most

    def refusal(self, event: Event) -> Failure | None:
        """Why this event can never be sent, or None. The cases: op, version, id, payload."""
        if event.op not in OPS:
            return refused(f"ValueError: Unknown outbox op: {event.op[:80]!r}", Code.PAYLOAD_UNSUPPORTED)
        if event.event_version < 0:
            return refused("event_version is below 0; versions start at 0", Code.PRECONDITION_FAILED)
        return self._bad_id(event) or _bad_payload(event)

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
            return refused(
                f"the document id is {size} bytes; Elasticsearch takes {MAX_ID_BYTES}", Code.PRECONDITION_FAILED
            )
        return None


def _bad_payload(event: Event) -> Failure | None:
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
