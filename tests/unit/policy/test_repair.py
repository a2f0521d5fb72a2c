"""Which event fixes what, and the version that lets it pass."""

import pytest

from outbox.policy.drift import DriftFinding, HeldDocument, Key, Kind, Truth
from outbox.policy.repair_event import RepairEvent, refresh, repair_event, too_many_deletes

KEY = Key("article", "1")
BODY = '{"a": 1}'


def held(version: int, source: object = None, routing: str | None = None) -> HeldDocument:
    return HeldDocument("article:1", version, routing, {"a": 2} if source is None else source)


@pytest.mark.parametrize(
    ("truth", "there", "tombstone", "expected"),
    [
        # remark: kind, op, version
        (Truth(KEY, BODY, 5), None, None, (Kind.MISSING, "upsert", 5)),
        (Truth(KEY, BODY, 5), None, 6, (Kind.MISSING, "upsert", 6)),  # deleted by hand: the tombstone is above
        (Truth(KEY, BODY, 5), None, 3, (Kind.MISSING, "upsert", 5)),
        (Truth(KEY, BODY, 6), held(5), None, (Kind.STALE, "upsert", 6)),
        (Truth(KEY, BODY, 5), held(5), None, (Kind.DIFFERENT, "upsert", 5)),
        (Truth(KEY, BODY, 5), held(8), None, (Kind.DIFFERENT, "upsert", 8)),  # edited by hand
        (Truth(KEY), held(8), None, (Kind.ORPHANED, "delete", 8)),
        (Truth(KEY, None, 9), held(8), None, (Kind.ORPHANED, "delete", 9)),
    ],
)
def test_versions_pass(
    truth: Truth, there: HeldDocument | None, tombstone: int | None, expected: tuple[Kind, str, int]
) -> None:
    made = repair_event(truth, there, tombstone)
    assert made is not None
    assert (made.kind, made.op, made.version) == expected


@pytest.mark.parametrize(
    ("deletes", "compared", "expected", "refused"),
    [
        (100, 10, None, False),
        (101, 1_000, None, True),
        (101, 2_000, None, False),
        (5, 10, 4, True),
        (5, 10, 5, False),
        (500, 10, 500, False),
    ],
)
def test_unusually_many_deletes_are_refused(deletes: int, compared: int, expected: int | None, refused: bool) -> None:
    findings = [DriftFinding(Kind.ORPHANED, "i", str(n), KEY) for n in range(deletes)]
    findings += [DriftFinding(Kind.MISSING, "i", "m", KEY)] * 1000
    assert too_many_deletes(findings, compared, expected) is refused


@pytest.mark.parametrize(
    ("truth", "there", "kind", "routing"),
    [
        (Truth(KEY, BODY), None, Kind.MISSING, None),
        (Truth(KEY, BODY), held(8, routing="here"), Kind.DIFFERENT, "here"),
        (Truth(KEY, BODY, None, "there", routed=True), held(8, {"a": 1}, "here"), Kind.DIFFERENT, "here"),
        (Truth(KEY), held(8, routing="here"), Kind.ORPHANED, "here"),
    ],
    ids=["missing", "different", "under another routing than the view says", "gone"],
)
def test_what_is_looked_up_is_repaired_without_a_version_where_the_document_is(
    truth: Truth, there: HeldDocument | None, kind: Kind, routing: str | None
) -> None:
    gone = kind is Kind.ORPHANED
    expected = RepairEvent(kind, KEY, "delete" if gone else "refresh", None, None, routing)
    assert refresh(truth, there, gone=gone) == expected


@pytest.mark.parametrize(
    ("truth", "there"),
    [
        (Truth(KEY, BODY, 5), held(5, {"a": 1})),
        (Truth(KEY, foreign="unknown"), held(5)),
        (Truth(KEY, failure="unreadable"), held(5)),
        (Truth(KEY), None),
    ],
    ids=["right by now", "unknown", "unreadable", "gone on both sides"],
)
def test_nothing_is_written_for_what_is_right_or_unknown(truth: Truth, there: HeldDocument | None) -> None:
    assert repair_event(truth, there, None) is None
    assert refresh(truth, there, gone=truth.text is None) is None


def test_routing_comes_from_the_document_else_from_the_event() -> None:
    assert repair_event(Truth(KEY, BODY, 5, "event"), held(5, routing="shard"), None) == RepairEvent(
        Kind.DIFFERENT, KEY, "upsert", 5, BODY, "shard"
    )
    missing = repair_event(Truth(KEY, BODY, 5, "event"), None, None)
    assert missing is not None
    assert missing.routing == "event"
