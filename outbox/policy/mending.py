"""Which event mends a document that is not as it should be, and with which version. Pure: both sides are handed in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outbox.policy.drift import DriftFinding, Held, Key, Kind, Truth, judge
from outbox.policy.event import DELETE, REFRESH, UPSERT

# More orphans than this, and more than a tenth of what was compared, look like the wrong index or the wrong view.
FEW_DELETES: Final = 100


@dataclass(frozen=True, slots=True)
class Mend:
    """An event to be written. Without a text the projector looks the document up; without a version it draws one."""

    kind: Kind
    key: Key
    op: str
    version: int | None
    text: str | None = None
    routing: str | None = None


def needs_refresh(truth: Truth, *, refreshed: bool) -> bool:
    """The view names no version for it. `refreshed`: for no entity of its type, so that what is gone counts too."""
    return refreshed or (truth.text is not None and truth.version is None)


def refresh(truth: Truth, held: Held | None, routing: str | None, *, gone: bool) -> Mend | None:
    """The projector makes the document equal to the view, whatever is wrong. Its routing is where it is now.

    `gone`: a delete, which the projector looks up like a refresh. Many refreshes that find no row would look like a
    broken view, and meet the brake; here two looks have said that they are gone.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    return Mend(kind, truth.key, DELETE if gone else REFRESH, None, None, routing if held is None else held.routing)


def mend(truth: Truth, held: Held | None, tombstone: int | None, routing: str | None) -> Mend | None:
    """The event for one document; None: by now it is as it should be, or nobody can say.

    The version is the source's own, or Elasticsearch's where that is higher, a tombstone's included: equal versions
    pass, so a document edited or deleted by hand is really mended. Where the view names a version below that, the text
    goes with the event, because a looked-up document is sent with the view's own version.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    version = max(truth.version or 0, held.version if held else 0, tombstone or 0)
    if kind is Kind.ORPHANED:
        assert held is not None
        return Mend(kind, truth.key, DELETE, version, None, held.routing)
    place = truth.routing or routing if held is None or truth.routed else held.routing
    return Mend(kind, truth.key, UPSERT, version, truth.text, place)


def _wrong(truth: Truth, held: Held | None) -> Kind | None:
    kind = judge(truth, held)
    return None if kind is Kind.UNKNOWN or truth.failure is not None else kind


def without_needless_text(mended: Mend, truth: Truth, *, looked_up: bool) -> Mend:
    """A document that can be looked up at its right version is: so it is as new as can be when it is sent."""
    if mended.op == DELETE or not looked_up or mended.version != truth.version:
        return mended
    return Mend(mended.kind, mended.key, mended.op, mended.version, None, mended.routing)


def too_many_deletes(findings: Sequence[DriftFinding], compared: int, expected: int | None) -> bool:
    deletes = sum(finding.kind is Kind.ORPHANED for finding in findings)
    if expected is not None:
        return deletes > expected
    return deletes > FEW_DELETES and deletes * 10 > compared
