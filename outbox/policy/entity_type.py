"""What is declared of an entity type, and what its first event declares. Pure: the view is asked by others."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from outbox.policy.document import refused
from outbox.policy.event import DELETE, Event
from outbox.policy.outcome import Code, Failure


class KeptBy(StrEnum):
    VIEW = "view"
    PAYLOAD = "payload"


class Versions(StrEnum):
    """Whose the versions of a payload type are."""

    OURS = "ours"
    PRODUCER = "producer"


class EntityType(NamedTuple):
    """`moving`: it was changed, and its documents are not all brought over."""

    kept_by: KeptBy
    versions: Versions = Versions.OURS
    moving: bool = False


BY_VIEW: Final = EntityType(KeptBy.VIEW)
NO_VIEW: Final = refused(
    "the payload is null and there is no view of documents; give a payload or create search_documents",
    Code.PAYLOAD_MISSING,
)
HAS_PAYLOAD: Final = refused(
    "its entity type is kept by the view, and this event carries a payload: leave it out, or declare the type with "
    "`outbox types set TYPE payload`",
    Code.PAYLOAD_UNSUPPORTED,
)
NO_PAYLOAD: Final = refused(
    "its entity type is kept by payloads, and this event carries none: send one, or have the view keep the type with "
    "`outbox types set TYPE view`",
    Code.PAYLOAD_MISSING,
)
UNDECLARED_DELETE: Final = refused(
    "the index holds a newer version, and nothing tells whether its entity type is kept by the view or by payloads: "
    "declare it with `outbox types set TYPE view|payload`, then replay",
    Code.PRECONDITION_FAILED,
)


def first_written(events: Iterable[Event]) -> Event | None:
    """The first that says what a document is written from: a delete does not."""
    return min((event for event in events if event.op != DELETE), key=lambda event: event.seq, default=None)


def declared_by(events: Iterable[Event], *, in_view: bool, has_view: bool, last_version: int) -> EntityType | None:
    """What the events of a new type declare, by what the first of them is written from. A type with rows in the view
    is the view's, whatever comes first. None: deletes declare nothing, nor does what no view can say."""
    if in_view:
        return BY_VIEW
    first = first_written(events)
    if first is None:
        return None
    if first.payload_bytes is None:
        return BY_VIEW if has_view else None
    own = first.event_version > last_version
    return EntityType(KeptBy.PAYLOAD, Versions.PRODUCER if own else Versions.OURS)


def other_sort(event: Event, declared: EntityType | None) -> Failure | None:
    if declared is None:
        return None if event.op == DELETE else NO_VIEW
    if declared.kept_by is KeptBy.VIEW:
        return HAS_PAYLOAD if event.payload_bytes is not None else None
    return NO_PAYLOAD if event.payload_bytes is None and event.op != DELETE else None
