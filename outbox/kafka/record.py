"""Reads a Kafka record as an event, or says by its class why it is none. Pure.

The contract: the key is `entity_type:entity_id`; the value is the payload byte for byte, or nothing; everything else is
in two headers: `id`, and `event`, a JSON array of the fields of `Described`, with the transaction and the database
behind them. The version is the event's own. An offset is no version: it starts anew with the topic, and says in which
order a connector wrote.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import methodcaller
from typing import Any, Final, NamedTuple, Protocol, cast
from uuid import UUID, SafeUUID, uuid5

import orjson

from outbox.policy.document import UNREADABLE
from outbox.policy.event import DELETE, OPS, REFRESH, Event

NAMESPACE: Final = UUID("6f0f5b0e-5c0e-5f43-9d0e-2f6b1c3f7a10")  # of ids for records that name none
LARGEST_BYTES: Final = 100 * 1024 * 1024  # what Elasticsearch takes in one request (`http.max_content_length`)
MOST_EVENT_BYTES: Final = 16_384  # of header `event`, before it is parsed
MOST_NAME_BYTES: Final = 2400  # of a field that is kept: what is longer is refused for it, and needs no more
LARGEST_VERSION: Final = 2**63 - 1
LAST_SECOND: Final = 253_402_300_799.0  # of the year 9999
TOO_LONG: Final = "a header is too long, or holds a zero byte"
NO_NUMBER: Final = "event_version is not a whole number"
NOT_TEXT: Final = "a header is not UTF-8 text"
BROKEN: Final[list[tuple[str, bytes | None]]] = [("", None)]  # in place of headers that cannot be read
_LARGEST_CHARACTER: Final = 4  # bytes
_HEADERS: Final = cast("Callable[[Message], Headers | None]", methodcaller("headers"))
_NO_TIME: Final = -1.0
# `Event(...)` without its frame in Python: 0.1 us per record instead of 0.35.
_EVENT: Final = cast("Callable[[tuple[Any, ...]], Event]", partial(tuple.__new__, Event))
_new, _set, _SAFE = object.__new__, object.__setattr__, SafeUUID.unknown  # a member of an Enum is found slowly

Headers = Sequence[tuple[str, bytes | str | None]]


class Message(Protocol):
    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | str | None: ...
    def value(self) -> bytes | str | None: ...
    def headers(self) -> Headers | None: ...


class NotAnEvent(Exception):
    """Not an event. The text is its class: it becomes the row's op and error, so it holds nothing of the record."""


class Described(NamedTuple):
    """What a record says of its event beside id, key and value, in the order of header `event`; more may follow."""

    op: str
    event_version: int | None  # a refresh needs none: its document gets a version that is drawn after this
    entity_type: str
    entity_id: str
    routing: str | None
    occurred_at: float | None  # microseconds since 1970
    has_payload: bool | None  # None: a value is a payload
    traceparent: str | None


_NULL: Final = type(None)
_TYPES: Final = (
    frozenset({str}),
    frozenset({int, _NULL}),
    frozenset({str}),
    frozenset({str}),
    frozenset({str, _NULL}),
    frozenset({int, float, _NULL}),
    frozenset({bool, _NULL}),
    frozenset({str, _NULL}),
)
_FIELDS: Final = len(_TYPES)


class Read(NamedTuple):
    """`occurred_at`: seconds since 1970 by the producer's database; None where it is not known. `transaction`: the one
    that wrote it there, and `database` the id of that, where the record says so."""

    event: Event
    occurred_at: float | None
    transaction: int | None = None
    database: str | None = None

    def is_foreign(self, database: str) -> bool:
        """Whether it asks for what only another database can say."""
        event = self.event
        return self.database not in (None, database) and event.payload is None and event.op != DELETE


_READ: Final = cast(
    "Callable[[tuple[Event, float | None, int | None, str | None]], Read]", partial(tuple.__new__, Read)
)


def headers_of(message: Message) -> Headers:
    """The only way to the headers of a record. For a name that is not UTF-8 the client sets an error, and returns and
    keeps a list with a hole, which ends the process by SIGSEGV when it is read (2.16). So another list takes its
    place. Python calls a method that it has often called without a check for such an error: hence `methodcaller`."""
    try:
        return _HEADERS(message) or ()
    except Exception:
        cast("Any", message).set_headers(BROKEN)
        return BROKEN


def key_of(topic: str, partition: int, offset: int) -> str:
    """Names a record for good: what is stored for it is stored once."""
    return f"kafka:{topic}:{partition}:{offset}"


def is_tombstone(message: Message) -> bool:
    """What compaction keeps of a deleted key: no value and no headers. Nobody wrote it as an event."""
    return not message.value() and not headers_of(message)


def read(message: Message, now: float, *, again: bool = False, routed: bool = False) -> Read:
    """Never raises: what cannot be read is an event with an op that says so, and fails by the usual rules. `again`: it
    may have been sent before, by this process or by the partition's last owner. `routed`: in the form of Debezium's
    outbox router."""
    try:
        return (_routed if routed else _event)(message, now, again)
    except NotAnEvent as error:
        return Read(_unreadable(message, str(error)), None)


def foreign(message: Message) -> Read:
    """A refresh whose document another database has: looked up in this one, it would be deleted."""
    return Read(_unreadable(message, "a refresh of another database"), None)


def read_all(messages: Sequence[Message], now: float) -> list[Read]:
    """The same for a batch of records that nobody has sent before."""
    try:
        found = _columns(messages, now)
    except (NotAnEvent, KeyError, TypeError, ValueError, AttributeError):
        found = None
    return [read(message, now) for message in messages] if found is None else found


def _columns(messages: Sequence[Message], now: float) -> list[Read] | None:
    """The usual batch, as our connector writes it, over whole columns: 3.8 us per record (CPU time of 20,000 records,
    median of five turns). It gives what `read` gives for each, or none at all where one is no event or written in an
    unusual way; a property test holds the two together."""
    headers = cast("list[list[tuple[str, bytes]]]", list(map(headers_of, messages)))
    names, ids, more_names, events = zip(*[(*first, *second) for first, second in headers], strict=True)
    if {*names} != {"id"} or {*more_names} != {"event"} or max(map(len, events)) > MOST_EVENT_BYTES:
        return None
    columns = list(zip(*map(orjson.loads, events), strict=True))
    ops, versions, kinds, entities, routings, times, has_payloads, traceparents = columns[:_FIELDS]
    transactions = columns[_FIELDS] if len(columns) > _FIELDS else repeat(None)
    databases = columns[_FIELDS + 1] if len(columns) > _FIELDS + 1 else repeat(None)
    if not all(map(frozenset.issuperset, _TYPES, [{*map(type, column)} for column in columns[:_FIELDS]])):
        return None
    keys = list(map("{}:{}".format, kinds, entities))
    values = cast("list[bytes | None]", [message.value() for message in messages])
    usual = (
        list(map(str.encode, keys)) == [message.key() for message in messages]
        and OPS.issuperset(ops)
        and None not in versions
        and min(versions) >= -LARGEST_VERSION
        and max(versions) <= LARGEST_VERSION
        and max(map(len, keys)) <= MOST_NAME_BYTES // _LARGEST_CHARACTER
        and True not in ["\x00" in key for key in keys]
        and True not in [value[0] == 0 or len(value) > LARGEST_BYTES for value in values if value]
    )
    if not usual:
        return None
    payloads = list(map(_payload, has_payloads, values, ops))
    seconds = list(map(_seconds, times))
    rows = zip(
        map(_uuid, map(bytes.decode, ids)),
        [message.offset() for message in messages],
        kinds,
        entities,
        ops,
        versions,
        payloads,
        [None if payload is None else len(payload) for payload in payloads],
        [None if text is None else _kept(text) for text in routings],
        repeat(1),
        repeat(None),
        repeat(0),
        repeat(0),
        repeat(False),
        [_NO_TIME if at is None else now - at for at in seconds],
        [None if text is None else _kept(text) for text in traceparents],
        repeat(0),
        strict=False,  # what is repeated has no end
    )
    written = zip(map(_EVENT, rows), seconds, map(_transaction, transactions), map(_database, databases), strict=False)
    return list(map(_READ, written))


def _event(message: Message, now: float, again: bool) -> Read:
    headers, id = _identified(message)
    if headers.get("event") is None:
        raise NotAnEvent("header event is missing")
    found, transaction, database = _described(headers["event"])
    if message.key() != f"{found.entity_type}:{found.entity_id}".encode():
        raise NotAnEvent("the key is not entity_type:entity_id")
    return _made(message, id, found, now, again)._replace(transaction=transaction, database=database)


def _routed(message: Message, now: float, again: bool) -> Read:
    """As Debezium's outbox router writes it: the key is the id, the type is a header or the end of the topic's name.
    It has no version, so it says only who changed."""
    headers, id = _identified(message)
    kind = headers.get("aggregatetype")
    key = cast("bytes", message.key() or b"")
    try:
        entity = orjson.loads(key) if key[:1] == b'"' else _text(key)
    except ValueError:
        raise NotAnEvent("the key is not an id") from None
    if not entity:
        raise NotAnEvent("the key is not an id")
    name = (message.topic() or "").rpartition(".")[2] if kind is None else _text(kind)
    return _made(message, id, Described(REFRESH, None, name, entity, None, None, False, None), now, again)


def _identified(message: Message) -> tuple[dict[str, bytes], bytes]:
    given = headers_of(message)
    if given is BROKEN:
        raise NotAnEvent(NOT_TEXT)
    headers = cast("dict[str, bytes]", dict(given))
    if headers.get("id") is None:
        raise NotAnEvent("header id is missing")
    return headers, headers["id"]


def _made(message: Message, id: bytes, found: Described, now: float, again: bool) -> Read:
    named = f"{found.entity_type}{found.entity_id}"
    if len(named.encode()) + 1 + len(found.op.encode()) > MOST_NAME_BYTES or "\x00" in named or "\x00" in found.op:
        raise NotAnEvent(TOO_LONG)
    value = cast("bytes | None", message.value())
    if value and (len(value) > LARGEST_BYTES or value[0] == 0):
        raise NotAnEvent(_bad_value(value))
    payload = _payload(found.has_payload, value, found.op)
    seconds = _seconds(found.occurred_at)
    made = _EVENT(
        (
            _uuid(_text(id)),
            message.offset(),
            found.entity_type,
            found.entity_id,
            found.op,
            _version(found.event_version, found.op),
            payload,
            None if payload is None else len(payload),
            None if found.routing is None else _kept(found.routing),
            1,
            None,
            0,
            0,
            again,
            _NO_TIME if seconds is None else now - seconds,
            None if found.traceparent is None else _kept(found.traceparent),
            0,
        )
    )
    return _READ((made, seconds, None, None))


def _described(text: bytes) -> tuple[Described, int | None, str | None]:
    """As our connector writes it, with the transaction and the database that follow."""
    if len(text) > MOST_EVENT_BYTES:
        raise NotAnEvent(TOO_LONG)
    try:
        found = orjson.loads(text)
        usual = isinstance(found, list) and len(found) >= len(_TYPES)
    except ValueError:
        usual = False
    if not usual or any(type(each) not in types for each, types in zip(found, _TYPES, strict=False)):
        raise NotAnEvent("header event is not the array that describes an event")
    transaction, database = (*found[_FIELDS : _FIELDS + 2], None, None)[:2]
    return Described(*found[:_FIELDS]), _transaction(transaction), _database(database)


def _transaction(number: object) -> int | None:
    """Older records have none; what else stands there is for a later release."""
    return number if type(number) is int and 0 < number <= LARGEST_VERSION else None


def _database(id: object) -> str | None:
    return id if type(id) is str else None


def _bad_value(value: bytes) -> str:
    """A schema registry's envelope begins with a zero byte, and no JSON text does."""
    return "the value is too large" if len(value) > LARGEST_BYTES else "the value is in a schema registry's envelope"


def _payload(has_payload: bool | None, value: bytes | None, op: str) -> bytes | None:
    """A delete has none, whatever its value."""
    if op == DELETE or not (value if has_payload is None else has_payload):
        return None
    if not value:
        raise NotAnEvent("the payload is missing")
    return value


def _version(version: int | None, op: str) -> int:
    if version is None and op == REFRESH:
        return 0
    if version is None:
        raise NotAnEvent("event_version is missing")
    if not -LARGEST_VERSION <= version <= LARGEST_VERSION:
        raise NotAnEvent(NO_NUMBER)
    return version


def _uuid(text: str) -> UUID:
    """Without UUID's own constructor where the text is in its usual form: 0.6 us instead of 1.1."""
    try:
        digits = text.replace("-", "")
        if len(digits) != 32:
            return UUID(text)
        made = _new(UUID)
        _set(made, "int", int(digits, 16))
        _set(made, "is_safe", _SAFE)
        return made
    except ValueError:
        raise NotAnEvent("id is not a uuid") from None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except (UnicodeDecodeError, AttributeError):
        raise NotAnEvent(NOT_TEXT) from None


def _kept(text: str) -> str:
    if len(text) > MOST_NAME_BYTES or "\x00" in text:
        raise NotAnEvent(TOO_LONG)
    return text


def _seconds(microseconds: float | None) -> float | None:
    if microseconds is None:
        return None
    seconds = microseconds / 1e6
    return seconds if 0 < seconds < LAST_SECOND else None


def _unreadable(message: Message, why: str) -> Event:
    """Under names that a person finds: as far as the record says them, else where it is."""
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    key = key_of(topic, partition, offset)
    kind, entity = _names(dict(headers_of(message)).get("event"))
    id = uuid5(NAMESPACE, key)
    op = UNREADABLE + why
    return Event(id, offset, kind or topic, entity or key, op, 0, None, None, None, 1, None, 0, 0, False, 0.0, None)


def _names(event: bytes | str | None) -> tuple[str, str]:
    """As far as the table can hold them."""
    try:
        described, *_ = _described(cast("bytes", event or b""))
    except NotAnEvent:
        return "", ""
    return described.entity_type.replace("\x00", "�")[:500], described.entity_id.replace("\x00", "�")[:500]
