"""The event as a claim returns it, its states, and the one table of transitions. Holds no behaviour of the queue."""

from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID


class Status(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"

    @property
    def is_settled(self) -> bool:
        return self not in (Status.PENDING, Status.PROCESSING)


UPSERT: Final = "upsert"
DELETE: Final = "delete"
REFRESH: Final = "refresh"
FANOUT: Final = "fanout"  # no event of a document: which documents a change touches is still to be asked
OPS: Final = frozenset({UPSERT, DELETE, REFRESH})
# A version above it was written by hand, or by a hostile writer: the sequence would soon run out if it followed.
HIGHEST_FOLLOWED: Final = 2**62
MOST_ABANDONED: Final = 6  # three times in company, three times alone


class Event(NamedTuple):
    """One claimed row. A named tuple, because a batch makes 500 of them: 0.4 us each against 1.6 us for a dataclass."""

    id: UUID
    seq: int
    entity_type: str
    entity_id: str
    op: str
    event_version: int
    payload: bytes | None  # the producer's own text; None when there is none, or when it is large
    payload_bytes: int | None  # None only when there is no payload
    routing: str | None
    attempts: int  # this claim included
    max_attempts: int | None
    abandoned_count: int
    replay_count: int
    retried: bool  # someone in its claim had been claimed before: a due retry, or a row that was given back
    age_seconds: float  # by the database's clock, when it was claimed; below 0: its creation lies ahead, or nowhere
    traceparent: str | None
    revision: int = 0  # of the declared entity types, at the claim; 0: a record, whose claim asked no database


# Which of two events of one entity is newer. Where the view keeps its type, all mean the same.
ORDER: Final = attrgetter("event_version", "seq")


class Transition(NamedTuple):
    source: Status
    target: Status
    by: str


# Drawn in sql/README.md and checked against the queries by a test: a new transition needs a new row.
TRANSITIONS: Final = (
    Transition(Status.PENDING, Status.PROCESSING, "claim"),
    Transition(Status.PROCESSING, Status.DONE, "settle"),
    Transition(Status.PROCESSING, Status.PENDING, "settle"),
    Transition(Status.PROCESSING, Status.FAILED, "settle"),
    Transition(Status.PROCESSING, Status.PENDING, "reclaim"),
    Transition(Status.PROCESSING, Status.FAILED, "reclaim"),
    Transition(Status.FAILED, Status.PENDING, "replay"),
    Transition(Status.DISCARDED, Status.PENDING, "replay"),
    Transition(Status.DONE, Status.PENDING, "reopen"),
    Transition(Status.DONE, Status.FAILED, "reopen"),
    Transition(Status.PENDING, Status.DISCARDED, "discard"),
    Transition(Status.FAILED, Status.DISCARDED, "discard"),
)


def allowed(source: Status, target: Status) -> bool:
    return any(t.source is source and t.target is target for t in TRANSITIONS)
