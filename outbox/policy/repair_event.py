"""Which event repairs a document, or projects an entity again for a person, and with which version. Pure: both sides
are given."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outbox.policy.drift import DriftFinding, HeldDocument, Key, Kind, Truth, judge
from outbox.policy.event import DELETE, REFRESH, UPSERT

# More orphans than this, and more than a tenth of what was compared, suggest the wrong index or the wrong view.
FEW_DELETES: Final = 100


@dataclass(frozen=True, slots=True)
class RepairEvent:
    """An event to be written. Without a text the projector looks up the document; without a version it draws one."""

    kind: Kind
    key: Key
    op: str
    version: int | None
    text: str | None = None
    routing: str | None = None


def needs_refresh(truth: Truth, *, refreshed: bool) -> bool:
    """The view names no version for it. `refreshed`: for no entity of its type, so that what is gone counts too."""
    return refreshed or (truth.text is not None and truth.version is None)


def refresh(truth: Truth, held: HeldDocument | None, routing: str | None, *, gone: bool) -> RepairEvent | None:
    """The projector makes the document equal to the view, whatever is wrong. Its routing is where it is now.

    `gone`: a delete, which the projector looks up like a refresh. Many refreshes that find no row would look like a
    broken view, and meet the brake; here two checks have said that they are gone.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    return RepairEvent(
        kind, truth.key, DELETE if gone else REFRESH, None, None, routing if held is None else held.routing
    )


def repair_event(
    truth: Truth, held: HeldDocument | None, tombstone: int | None, routing: str | None
) -> RepairEvent | None:
    """The event for one document; None: by now it is as it should be, or nobody can say.

    The version is the source's own, or Elasticsearch's where that is higher, a tombstone's included: equal versions
    pass, so a document edited or deleted by hand is really corrected. Where the view names a version below that, the
    text goes with the event, because a looked-up document is sent with the view's own version.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    version = max(truth.version or 0, held.version if held else 0, tombstone or 0)
    if kind is Kind.ORPHANED:
        assert held is not None
        return RepairEvent(kind, truth.key, DELETE, version, None, held.routing)
    place = truth.routing or routing if held is None or truth.routed else held.routing
    return RepairEvent(kind, truth.key, UPSERT, version, truth.text, place)


def _wrong(truth: Truth, held: HeldDocument | None) -> Kind | None:
    kind = judge(truth, held)
    return None if kind is Kind.UNKNOWN or truth.failure is not None else kind


def without_needless_text(made: RepairEvent, truth: Truth, *, looked_up: bool) -> RepairEvent:
    """A document that can be looked up at its right version is: so it is as new as can be when it is sent."""
    if made.op == DELETE or not looked_up or made.version != truth.version:
        return made
    return RepairEvent(made.kind, made.key, made.op, made.version, None, made.routing)


def too_many_deletes(findings: Sequence[DriftFinding], compared: int, expected: int | None) -> bool:
    deletes = sum(finding.kind is Kind.ORPHANED for finding in findings)
    if expected is not None:
        return deletes > expected
    return deletes > FEW_DELETES and deletes * 10 > compared


@dataclass(frozen=True, slots=True)
class Reprojection:
    """Without a text the projector looks up the document, or finds that the entity is gone."""

    entity_type: str
    entity_id: str
    op: str
    version: int | None  # None: a refresh, whose version is drawn when the view is read
    text: str | None
    routing: str | None


def reprojection(
    truth: Truth, known: tuple[int, str | None] | None, held: int | None, *, looked_up: bool, refreshed: bool
) -> Reprojection | None:
    """`known`: the entity's highest event version, and its routing. `held`: Elasticsearch's version. None: unknown.

    Where the view names no version it is a refresh. Else the version is the entity's newest (the source's, else its
    highest event's), or Elasticsearch's where that is higher: equal versions pass. A looked-up document is sent with
    the view's own version, so where Elasticsearch is ahead of it the text goes with the event.
    """
    event_version, event_routing = known or (None, None)
    own = truth.version if truth.version is not None else event_version
    if own is None and held is None and truth.text is None:
        return None
    key = truth.key
    if needs_refresh(truth, refreshed=refreshed):
        return Reprojection(key.entity_type, key.entity_id, REFRESH, None, None, event_routing)
    version = max(own or 0, held or 0)
    routing = truth.routing or event_routing
    if truth.text is None and not looked_up:
        return Reprojection(key.entity_type, key.entity_id, DELETE, version, None, routing)
    ahead = truth.version is not None and version > truth.version
    text = truth.text if ahead or not looked_up else None
    return Reprojection(key.entity_type, key.entity_id, UPSERT, version, text, routing)
