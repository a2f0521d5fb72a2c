"""Owns the bytes of a bulk request and of its reply: action lines, bodies as they are, portions of bounded size; one
outcome per action, or that it cannot be read. Sends nothing."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

import orjson

from outbox.policy.classify import OnUnknown, classify_item, unreadable
from outbox.policy.outcome import WRITTEN, Failure, Outcome
from outbox.ports import BulkAction

# `status` keeps every item's place: with `items.*.error` alone the good ones vanish and positions shift.
_FILTER: Final = "errors,items.*.status,items.*.error"
# A raw line break in JSON text can only be white space; on the wire it would end the document's line.
_LINE_BREAKS: Final = bytes.maketrans(b"\n\r", b"  ")
_FINE: Final = ({"index": {"status": 201}}, {"index": {"status": 200}})

# For a missing primary, and for the master's reply about a new field. One red shard delays every request with a
# document for it by this long.
SHARD_WAIT_SECONDS: Final = 3.0
# The same where a shard of this index is down or may be. Its events come back every few seconds, each in a request with
# others: with three seconds each, the p99 of all others was 6 to 11 s (scripts/nemesis --lane neighbours), with this
# 0.14 s. A new field that needs longer is sent again with the whole wait.
AWAY_WAIT_SECONDS: Final = 0.1


def address(
    index: str, *, require_alias: bool, deadline_seconds: float, shard_wait_seconds: float = SHARD_WAIT_SECONDS
) -> str:
    """The request's target. Elasticsearch gives up waiting for a shard before we give up waiting for it."""
    alias = "&require_alias=true" if require_alias else ""
    wait = max(1, int(min(shard_wait_seconds, 0.8 * deadline_seconds) * 1000))
    return f"/{quote(index, safe='')}/_bulk?filter_path={_FILTER}&timeout={wait}ms{alias}"


class Encoded:
    """The actions of one index as parts, two per action; a delete has no body. A range of them is one request.

    Measured, 500 documents of 500 B: 0.6 us per event to encode, 0.4 to portion and join, 0.4 to read the reply. The
    parts are joined only for sending, so a batch is held twice and not three times.
    """

    def __init__(self, actions: Sequence[BulkAction]) -> None:
        _, names, versions, routings, bodies = zip(*actions, strict=True) if actions else ((),) * 5
        self._deletes = None in bodies
        words = [b"delete" if body is None else b"index" for body in bodies]
        lines = list(map(_line, words, names, versions, routings))
        self._parts: list[bytes | None] = [None] * (2 * len(lines))
        self._parts[::2] = lines
        # `10 in body` is a memchr: 0.05 us; b"\n" in body takes 0.25.
        self._parts[1::2] = [
            body.translate(_LINE_BREAKS) if body is not None and (10 in body or 13 in body) else body for body in bodies
        ]

    def __len__(self) -> int:
        return len(self._parts) // 2

    def body(self, start: int, stop: int) -> bytes:
        return b"\n".join([*self._there(start, stop), b""])

    def size(self, position: int) -> int:
        line, body = self._parts[2 * position], self._parts[2 * position + 1]
        return len(line or b"") + 1 + (len(body) + 1 if body is not None else 0)

    def portions(self, most_bytes: int, most_items: int) -> Iterator[tuple[int, int]]:
        """Ranges within both limits; an action that is too large by itself stands alone."""
        whole = self._there(0, len(self))
        if 0 < len(self) <= most_items and sum(map(len, whole)) + len(whole) <= most_bytes:  # as nearly always
            yield 0, len(self)
            return
        start = size = 0
        for position in range(len(self)):
            own = self.size(position)
            if position > start and (size + own > most_bytes or position - start >= most_items):
                yield start, position
                start, size = position, 0
            size += own
        if start < len(self):
            yield start, len(self)

    def _there(self, start: int, stop: int) -> list[bytes]:
        parts = self._parts[2 * start : 2 * stop]
        return [part for part in parts if part is not None] if self._deletes else cast(list[bytes], parts)


def _line(word: bytes, name: str, version: int, routing: str | None) -> bytes:
    if routing is None:
        return b'{"%b":{"_id":%b,"version":%d,"version_type":"external_gte"}}' % (word, _text(name), version)
    return b'{"%b":{"_id":%b,"routing":%b,"version":%d,"version_type":"external_gte"}}' % (
        word,
        _text(name),
        _text(routing),
        version,
    )


def _text(value: str) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # A lone surrogate: PostgreSQL cannot hold one, but a library caller may. Elasticsearch will say what it thinks.
        return json.dumps(value).encode()


def read(raw: bytes, actions: Sequence[BulkAction], report: OnUnknown | None = None) -> list[Outcome] | Failure:
    """Outcomes in order. Every item is read, also when `errors` is false: a row is done by its own item's status."""
    try:
        reply = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return unreadable("not JSON")
    items = reply.get("items") if isinstance(reply, dict) else None
    if not isinstance(items, list):
        return unreadable("no items")
    if len(items) != len(actions):
        return unreadable(f"{len(items)} items for {len(actions)} actions")
    return _all_alike(items, actions) or _each(items, actions, report)


def _all_alike(items: list[Any], actions: Sequence[BulkAction]) -> list[Outcome]:
    """What nearly every reply is: all documents new, or all written before. Compared as a whole, which saves 0.3 us per
    item. Empty: each has to be read."""
    first = items[0] if items else None
    if first in _FINE and items.count(first) == len(items) and None not in [action.body for action in actions]:
        return [WRITTEN] * len(items)
    return []


def _each(items: list[Any], actions: Sequence[BulkAction], report: OnUnknown | None) -> list[Outcome] | Failure:
    outcomes: list[Outcome] = []
    for item, action in zip(items, actions, strict=True):
        word = "index" if action.body is not None else "delete"
        # A slot that does not answer our word is another request's, or shuffled: nothing in this reply is believed.
        result = item.get(word) if isinstance(item, dict) else None
        if not isinstance(result, dict):
            return unreadable("an item that answers another action")
        fine = len(result) == 1 and result.get("status") in (200, 201)
        outcomes.append(WRITTEN if fine else classify_item(word, result, report))
    return outcomes
