"""Loads the documents that are too large to come along with their batch, portion by portion. Sends nothing."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from outbox.daemon.batch import Bodies, Delivery, Rows
from outbox.errors import DocumentsUnavailable
from outbox.policy.document import not_an_object, refused, too_large
from outbox.policy.outcome import Code, Failure

PAYLOAD_GONE: Final = refused("the payload was removed while the event was on its way; replay it", Code.PAYLOAD_MISSING)


class Loaded(NamedTuple):
    """`waiting`: large documents of a view that cannot be read now."""

    good: Rows
    bad: Sequence[tuple[Delivery, Failure]]
    waiting: Sequence[Delivery] = ()
    away: DocumentsUnavailable | None = None


def load(portion: Sequence[Delivery], bodies: Bodies) -> Loaded:
    """What is above the limit is never read: its size is known since the claim, or the lookup."""
    bad = [(d, too_large(d.size_bytes, bodies.most_bytes)) for d in portion if d.size_bytes > bodies.most_bytes]
    absent = [d for d in portion if d.body is None and 0 < d.size_bytes <= bodies.most_bytes]
    looked_up = [d for d in absent if d.drawn]
    bad += _fill_payloads([d for d in absent if not d.drawn], bodies)
    waiting, away = list[Delivery](), None
    try:
        bad += _fill_documents(looked_up, bodies)
    except DocumentsUnavailable as error:
        waiting, away = looked_up, error
    left_out = {id(delivery) for delivery in (*waiting, *(delivery for delivery, _ in bad))}
    return Loaded(Rows(d for d in portion if id(d) not in left_out), bad, waiting, away)


def _fill_payloads(wanted: Sequence[Delivery], bodies: Bodies) -> list[tuple[Delivery, Failure]]:
    """Answers the ones that turn out to be no documents."""
    payloads = bodies.store.payloads([d.stack.head.id for d in wanted]) if wanted else {}
    bad = []
    for delivery in wanted:
        delivery.body = payloads.get(delivery.stack.head.id)
        failure = PAYLOAD_GONE if delivery.body is None else not_an_object(delivery.body)
        if failure is not None:
            bad.append((delivery, failure))
    return bad


def _fill_documents(wanted: Sequence[Delivery], bodies: Bodies) -> list[tuple[Delivery, Failure]]:
    """The same for documents of the view. A second read may find another document, or none: what it says now is
    what is sent. Raises DocumentsUnavailable."""
    loaded = bodies.documents.load([d.stack.head for d in wanted], whole=True) if wanted else {}
    bad = []
    for delivery in wanted:
        document = loaded[delivery.stack.head.id]
        grown = (document.size_bytes or 0) if document.body is None else 0
        failure = too_large(grown, bodies.most_bytes) if grown else document.failure
        if failure is not None:
            bad.append((delivery, failure))
            continue
        delivery.body = document.body
        delivery.as_delete = document.size_bytes is None
        delivery.routing = document.routing
    return bad
