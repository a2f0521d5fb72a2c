"""Where a page of events begins: which shelf (state) and behind which row. Reads nothing itself.

A list goes through shelves one after the other, each with an order that an index gives, so that no page reads more
than itself. A place is written as text (`failed:2026-02-03T10:00:00+00:00:ID`) and read back strictly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from outbox.errors import UsageError
from outbox.ops.stored import StoredEvent
from outbox.policy.event import Status

_LAST_SEQ: Final = 2**63 - 1
_LAST: Final = (datetime(9999, 1, 1, tzinfo=UTC), UUID(int=2**128 - 1))


class Shelf(StrEnum):
    OPEN = "open"
    FAILED = "failed"
    DONE = "done"
    DISCARDED = "discarded"


_OF_STATUS: Final = {
    Status.PENDING: Shelf.OPEN,
    Status.PROCESSING: Shelf.OPEN,
    Status.FAILED: Shelf.FAILED,
    Status.DONE: Shelf.DONE,
    Status.DISCARDED: Shelf.DISCARDED,
}
_BY_DEFAULT: Final = (Status.PENDING, Status.PROCESSING, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Place:
    shelf: Shelf
    statuses: tuple[str, ...] = ()
    before_seq: int = _LAST_SEQ
    before: tuple[datetime, UUID] = field(default=_LAST)

    def __str__(self) -> str:
        if self.shelf is Shelf.OPEN:
            return f"{self.shelf}:{self.before_seq}"
        at, id = self.before
        return f"{self.shelf}:{at.isoformat()}:{id}"


def places(statuses: Collection[str], *, everything: bool) -> list[Place]:
    """The shelves that hold these states, in the order of the list."""
    wanted = [_status(name) for name in statuses] or list(Status if everything else _BY_DEFAULT)
    shelves = dict.fromkeys(_OF_STATUS[status] for status in sorted(wanted, key=list(_OF_STATUS).index))
    return [Place(shelf, tuple(str(s) for s in wanted if _OF_STATUS[s] is shelf)) for shelf in shelves]


def _status(name: str) -> Status:
    try:
        return Status(name)
    except ValueError:
        raise UsageError(f"status {name[:80]!r} is none of {', '.join(Status)}") from None


def first_place(wanted: Sequence[Place]) -> Place:
    return wanted[0]


def next_place(place: Place, wanted: Sequence[Place], last: StoredEvent | None, *, more: bool) -> Place | None:
    """Behind the last row of this page, or the beginning of the next shelf, or the end."""
    if more and last is not None:
        return _behind(place, last)
    here = next(n for n, each in enumerate(wanted) if each.shelf is place.shelf)
    return wanted[here + 1] if here + 1 < len(wanted) else None


def _behind(place: Place, last: StoredEvent) -> Place:
    if place.shelf is Shelf.OPEN:
        return replace(place, before_seq=last.seq or 0)
    at = last.failed_at if place.shelf is Shelf.FAILED else last.processed_at
    return replace(place, before=(at or _LAST[0], last.id))


def read_place(text: str, wanted: Sequence[Place]) -> Place:
    """A place that an earlier page named; anything else is refused, because it could only skip rows."""
    shelf, _, rest = text.partition(":")
    place = next((each for each in wanted if each.shelf == shelf), None)
    try:
        if place is None:
            raise ValueError(shelf)
        if place.shelf is Shelf.OPEN:
            return replace(place, before_seq=_seq(rest))
        at, _, id = rest.rpartition(":")
        read = datetime.fromisoformat(at)
        return replace(place, before=(read if read.tzinfo else read.replace(tzinfo=UTC), UUID(id)))
    except ValueError:
        raise UsageError("that is no place in this list: use the one that the page before has named") from None


def _seq(text: str) -> int:
    """A number that PostgreSQL can compare: digits beyond its bigint are nobody's."""
    if not (text.isascii() and text.isdecimal()) or (seq := int(text[:20])) > _LAST_SEQ:
        raise ValueError(text)
    return seq
