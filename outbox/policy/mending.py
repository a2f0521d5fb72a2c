"""Which event mends a document that is not as it should be, and with which version. Pure: both sides are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outbox.policy.drift import Finding, Held, Key, Kind, Truth, judge
from outbox.policy.event import DELETE, UPSERT

# More orphans than this, and more than a tenth of what was compared, look like the wrong index or the wrong view.
FEW_DELETES: Final = 100


@dataclass(frozen=True, slots=True)
class Mend:
    """An event to be written. Without a text the projector looks the document up."""

    kind: Kind
    key: Key
    op: str
    version: int
    text: str | None = None
    routing: str | None = None


def mend(truth: Truth, held: Held | None, known: int | None, tombstone: int | None, routing: str | None) -> Mend | None:
    """The event for one document; None: by now it is as it should be, or nobody can say.

    The version is the entity's newest (the source's, else its highest event's), or Elasticsearch's where that is
    higher, a tombstone's included: equal versions pass, so a document edited or deleted by hand is really mended.
    Where the view names a version below that, the text goes with the event, because a looked-up document is sent with
    the view's own version.
    """
    kind = judge(truth, held)
    if kind is None or kind is Kind.UNKNOWN or truth.failure is not None:
        return None
    there = max(held.version if held else 0, tombstone or 0)
    if kind is Kind.ORPHANED:
        assert held is not None
        return Mend(kind, truth.key, DELETE, max(there, truth.version or 0), None, held.routing)
    own = truth.version if truth.version is not None else (known or 0)
    version = max(own, there)
    chosen = held.routing if held is not None else (truth.routing or routing)
    return Mend(kind, truth.key, UPSERT, version, truth.text, chosen)


def without_needless_text(mended: Mend, truth: Truth, *, looked_up: bool) -> Mend:
    """A document that can be looked up at its right version is: so it is as new as can be when it is sent."""
    if mended.op == DELETE or not looked_up:
        return mended
    if truth.version is not None and mended.version > truth.version:
        return mended
    return Mend(mended.kind, mended.key, mended.op, mended.version, None, mended.routing)


def too_many_deletes(findings: Sequence[Finding], compared: int, expected: int | None) -> bool:
    deletes = sum(finding.kind is Kind.ORPHANED for finding in findings)
    if expected is not None:
        return deletes > expected
    return deletes > FEW_DELETES and deletes * 10 > compared
