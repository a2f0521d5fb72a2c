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


def refresh(truth: Truth, held: HeldDocument | None, *, gone: bool) -> RepairEvent | None:
    """Where the view keeps its type: the projector makes the document equal to the view, whatever is wrong. Its routing
    is where the document is now.

    `gone`: a delete, which the projector looks up like a refresh. Many refreshes that find no row would look like a
    broken view, and meet the brake; here two checks have said that they are gone.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    return RepairEvent(kind, truth.key, DELETE if gone else REFRESH, None, None, held.routing if held else None)


def repair_event(truth: Truth, held: HeldDocument | None, tombstone: int | None) -> RepairEvent | None:
    """Where payloads keep its type; None: by now it is as it should be, or nobody can say.

    The version is the newest event's, or Elasticsearch's where that is higher, a tombstone's included: equal versions
    pass, so a document edited or deleted by hand is really corrected.
    """
    kind = _wrong(truth, held)
    if kind is None:
        return None
    version = max(truth.version or 0, held.version if held else 0, tombstone or 0)
    if kind is Kind.ORPHANED:
        assert held is not None
        return RepairEvent(kind, truth.key, DELETE, version, None, held.routing)
    return RepairEvent(kind, truth.key, UPSERT, version, truth.text, held.routing if held else truth.routing)


def _wrong(truth: Truth, held: HeldDocument | None) -> Kind | None:
    kind = judge(truth, held)
    return None if kind is Kind.UNKNOWN or truth.failure is not None else kind


def too_many_deletes(findings: Sequence[DriftFinding], compared: int, expected: int | None) -> bool:
    deletes = sum(finding.kind is Kind.ORPHANED for finding in findings)
    if expected is not None:
        return deletes > expected
    return deletes > FEW_DELETES and deletes * 10 > compared


@dataclass(frozen=True, slots=True)
class Reprojection:
    entity_type: str
    entity_id: str
    op: str
    version: int | None  # None: a refresh, whose version is drawn when the view is read
    text: str | None
    routing: str | None


def reprojection(truth: Truth, held: int | None, *, viewed: bool) -> Reprojection | None:
    """`held`: Elasticsearch's version. None: nobody knows this entity, and no document of it can be under a routing.

    Where the view keeps its type it is a refresh. Else the version is the newest event's, or Elasticsearch's where that
    is higher: equal versions pass.
    """
    if held is None and truth.text is None and truth.version is None and not truth.routed:
        return None
    if viewed:
        return Reprojection(*truth.key, REFRESH, None, None, None)
    op = DELETE if truth.text is None else UPSERT
    return Reprojection(*truth.key, op, max(truth.version or 0, held or 0), truth.text, truth.routing)
