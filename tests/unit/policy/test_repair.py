"""Which event fixes what, and the version that lets it pass."""

import pytest

from outbox.policy.drift import DriftFinding, HeldDocument, Key, Kind, Truth
from outbox.policy.repair_event import repair_event, too_many_deletes

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
