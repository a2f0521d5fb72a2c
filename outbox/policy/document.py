"""Which document an entity and an event mean, which events are refused before anything is sent, and which of several
events of one document is. Reads one byte of a payload."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from outbox.policy.drift import Key
from outbox.policy.event import DELETE, OPS, ORDER, REFRESH, Event
from outbox.policy.outcome import Code, Failure, Reason
from outbox.policy.redact import fingerprint

MAX_ID_BYTES: Final = 512  # Elasticsearch refuses the whole request for one longer id
MAX_TYPE_BYTES: Final = 512  # also where it is no part of the document's id: a name, and in indexes
MAX_ROUTING_BYTES: Final = 2048  # Elasticsearch has no limit of its own; a claim cuts what is far longer
BATCH_BYTES: Final = 8_388_608  # of documents that are read or sent at once
# Of one document: three times as much in two lanes fits beside all else into the 384 MiB of the shipped files.
DOCUMENT_BYTES: Final = 33_554_432
INLINE_BYTES: Final = 65_536  # of one document that is read with many others; larger ones are read by portions
PAGE_BYTES: Final = 500 * INLINE_BYTES  # of verify and rebuild: a document that is left out costs a request of its own
CUT_AT: Final = 2400  # characters, by the claim: it may have been longer
UNREADABLE: Final = "unreadable: "  # begins the op of a record that is no event; what follows is its class
_WHITE: Final = b" \t\r\n"


class Address(NamedTuple):
    """Where a document lives. Routing belongs to it: one `_id` under two routings is two documents."""

    index: str  # type: ignore[assignment]
    id: str
    routing: str | None


@dataclass(frozen=True, slots=True)
class Naming:
    """`composed`: `entity_type:entity_id`, the default; otherwise the entity id alone, which does not tell the type."""

    composed: bool
    index_of: Callable[[str], str]

    def id_of(self, key: Key) -> str:
        return self.document_id(*key)

    def prefix(self, entity_type: str) -> str:
        return f"{entity_type}:" if self.composed else ""

    def document_id(self, entity_type: str, entity_id: str) -> str:
        return self.prefix(entity_type) + entity_id

    def address(self, entity_type: str, entity_id: str, routing: str | None = None) -> Address:
        return Address(self.index_of(entity_type), self.document_id(entity_type, entity_id), routing)

    def keys_of(self, id: str, types: tuple[str, ...]) -> list[Key]:
        """The entities that this id may mean: one, or one per type. None: no event of ours could have made it."""
        if not self.composed:
            return [Key(kind, id) for kind in types]
        entity_type, colon, entity_id = id.partition(":")
        return [Key(entity_type, entity_id)] if colon and entity_type and entity_id else []

    def refusal(self, event: Event) -> Failure | None:
        """Why this event can never be sent, or None. The cases: op, version, names, payload."""
        if event.op.startswith(UNREADABLE):
            why = event.op.removeprefix(UNREADABLE)[:80]
            return refused(f"the record is not an event: {why}; see docs/kafka.md", Code.PAYLOAD_UNSUPPORTED)
        if event.op not in OPS:
            return refused(f"ValueError: Unknown outbox op: {event.op[:80]!r}", Code.PAYLOAD_UNSUPPORTED)
        if event.event_version < 0:
            return precondition("event_version is below 0; versions start at 0")
        return self._bad_id(event) or _bad_names(event) or _bad_payload(event)

    def _bad_id(self, event: Event) -> Failure | None:
        if not event.entity_id:
            return precondition("entity_id is empty; every document needs an id")
        if self.composed and ":" in event.entity_type:
            return precondition("entity_type holds ':', which would make two entities share one document id")
        size = len(self.document_id(event.entity_type, event.entity_id).encode())
        if size > MAX_ID_BYTES:
            or_more = " or more" if size >= CUT_AT else ""
            return precondition(f"the document id is {size} bytes{or_more}; Elasticsearch takes {MAX_ID_BYTES}")
        return None


def _bad_names(event: Event) -> Failure | None:
    if len(event.entity_type.encode()) > MAX_TYPE_BYTES:
        return precondition(f"entity_type has over {MAX_TYPE_BYTES} bytes")
    if event.routing is not None and len(event.routing.encode()) > MAX_ROUTING_BYTES:
        return precondition(f"routing has over {MAX_ROUTING_BYTES} bytes")
    return None


def is_refresh_with_payload(op: str, payload_bytes: int | None) -> bool:
    return op == REFRESH and payload_bytes is not None


def _bad_payload(event: Event) -> Failure | None:
    if is_refresh_with_payload(event.op, event.payload_bytes):
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


def too_large(size_bytes: int, most: int) -> Failure:
    """Known by its size alone: it was not read."""
    error = f"the document has {size_bytes:,} bytes; OUTBOX_MAX_DOCUMENT_BYTES allows {most:,}"
    mark = fingerprint(Reason.TOO_LARGE, "above OUTBOX_MAX_DOCUMENT_BYTES")
    return Failure(Reason.TOO_LARGE, error, Code.PAYLOAD_INVALID, mark)


def refused(error: str, code: Code) -> Failure:
    return Failure(Reason.DETERMINISTIC, error, code, fingerprint(Reason.DETERMINISTIC, error))


def precondition(error: str) -> Failure:
    return refused(error, Code.PRECONDITION_FAILED)


@dataclass(slots=True)
class Stack:
    """The events of one document, newest on top. `viewed`: the view keeps its type, and all of them mean the same."""

    address: Address
    head: Event
    older: list[Event] = field(default_factory=list)  # newest last
    viewed: bool = False
    refused: int = 0  # so often a version that was drawn for it met a higher one
    wrote: list[tuple[str, int]] = field(default_factory=list)  # places with a routing, and the numbers there

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.head, *self.older)

    def push(self, event: Event) -> None:
        if ORDER(event) >= ORDER(self.head):
            self.older.append(self.head)
            self.head = event
        else:
            self.older.append(event)

    def alike(self) -> list[Event]:
        """Those that would read and send the same again."""
        return self.older if self.viewed else []

    def drop_head(self) -> bool:
        """The newest was refused for good, and so were those alike: the next older one takes its place. False = none
        is left."""
        if self.viewed or not self.older:
            return False
        self.older.sort(key=ORDER)
        self.head = self.older.pop()
        return True


def coalesce(addressed: Sequence[tuple[Address, Event]], viewed: Container[str] = ()) -> list[Stack]:
    """One stack per document, in the order in which the documents were first met. Where the view keeps the type it is
    one whatever routing its events carry: they tell at most where it was."""
    stacks: dict[Address, Stack] = {}
    for address, event in addressed:
        by_view = event.entity_type in viewed
        at = address._replace(routing=None) if by_view else address
        stack = stacks.get(at)
        if stack is None:
            stacks[at] = Stack(at, event, viewed=by_view)
        else:
            stack.push(event)
    return list(stacks.values())
