"""What counts as drift, and how much of it a report keeps."""

import pytest

from outbox.policy.document import Naming
from outbox.policy.drift import (
    NO_SOURCE,
    DriftFinding,
    DriftReport,
    HeldDocument,
    Key,
    Kind,
    Truth,
    judge,
    seen_of,
)
from outbox.reindex.partwise_verify import RESULTS, PartResult

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


def test_two_checks_are_equal_only_when_both_sides_did_not_change() -> None:
    first = seen_of(Truth(KEY, BODY, 5), held(4))
    assert seen_of(Truth(KEY, BODY, 5), held(4)) == first
    assert seen_of(Truth(KEY, BODY, 6), held(4)) != first
    assert seen_of(Truth(KEY, '{"title":"z"}', 5), held(4)) != first
    assert seen_of(Truth(KEY, BODY, 5), held(5)) != first
    assert seen_of(Truth(KEY, BODY, 5), None) != first


def test_a_report_counts_all_and_keeps_a_hundred() -> None:
    report = DriftReport()
    for n in range(1000):
        report.found(DriftFinding(Kind.ORPHANED, "i", str(n), KEY, fields=(f"field{n}",)))
        report.cannot_read(KEY, "why")
    assert report.drift == 1000
    assert [len(each) for each in (report.first[Kind.ORPHANED], report.first_unreadable, report.fields)] == [100] * 3
    assert not report.conclusive


@pytest.mark.parametrize(
    ("composed", "id", "expected"),
    [
        (True, "article:1", [Key("article", "1")]),
        (True, "article:a:b", [Key("article", "a:b")]),
        (True, "article:", []),
        (True, ":1", []),
        (True, "plain", []),
        (False, "plain", [Key("article", "plain"), Key("comment", "plain")]),
    ],
)
def test_an_id_tells_which_entities_it_may_mean(composed: bool, id: str, expected: list[Key]) -> None:
    naming = Naming(composed, lambda _: "i")
    assert naming.keys_of(id, ("article", "comment")) == expected
    assert all(naming.id_of(key) == id for key in expected)


def test_reports_of_parts_add_up_to_what_one_report_would_hold() -> None:
    """By way of JSON, as they come from other processes; the first hundred of each kind stay."""
    whole, added = DriftReport(), DriftReport()
    for number in range(3):
        part = DriftReport(compared=10, in_flux=1, without_source=3)
        for place in range(60):
            kind = Kind.DIFFERENT if place % 2 else Kind.UNKNOWN
            key = KEY if place % 2 else None
            found = DriftFinding(kind, "i", f"{number}-{place}", key, 1, 2, "r", ("title",), "why", failed=place == 1)
            part.found(found)
            whole.found(found)
        part.cannot_read(KEY, "broken")
        whole.cannot_read(KEY, "broken")
        part.note("said once")
        whole.note("said once")
        crossed = RESULTS.validate_json(RESULTS.dump_json(PartResult(part, [])))
        added.add(crossed.report)
    whole.compared, whole.in_flux, whole.without_source = 30, 3, 9
    assert added == whole
    assert len(added.first[Kind.UNKNOWN]) == 90
