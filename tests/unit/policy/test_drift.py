"""What counts as drift, and how much of it a report keeps."""

import pytest

from outbox.policy.drift import (
    NO_SOURCE,
    HeldDocument,
    Key,
    Kind,
    Truth,
    judge,
)

KEY = Key("article", "1")
BODY = '{"title": "x"}'


def held(version: int = 5, source: object = None) -> HeldDocument:
    return HeldDocument("article:1", version, None, {"title": "x"} if source is None else source)


@pytest.mark.parametrize(
    ("truth", "there", "expected"),
    [
        (Truth(KEY, BODY, 5), held(), None),
        (Truth(KEY, BODY, 5), None, Kind.MISSING),
        (Truth(KEY, BODY, 6), held(5), Kind.STALE),
        (Truth(KEY, BODY, 6), held(5, {"title": "y"}), Kind.STALE),
        (Truth(KEY, BODY, 5), held(5, {"title": "y"}), Kind.DIFFERENT),
        (Truth(KEY, BODY, 5), held(7, {"title": "y"}), Kind.DIFFERENT),  # a hand edit raises the version
        (Truth(KEY, BODY, 5), held(7), None),  # a repaired hand edit
        (Truth(KEY, BODY, None), held(0), None),  # the view names no version
        (Truth(KEY, BODY, 5), held(5, NO_SOURCE), None),
        (Truth(KEY, BODY, 6), held(5, NO_SOURCE), Kind.STALE),
        (Truth(KEY), held(), Kind.ORPHANED),
        (Truth(KEY), None, None),
        (Truth(KEY, foreign="nobody knows"), held(), Kind.UNKNOWN),
        (Truth(KEY, foreign="nobody knows"), None, None),
    ],
)
def test_verdicts(truth: Truth, there: HeldDocument | None, expected: Kind | None) -> None:
    assert judge(truth, there) is expected
