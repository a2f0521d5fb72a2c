"""Which event a person's wish becomes: its version, its text, its routing."""

import pytest

from outbox.policy.drift import Key, Truth
from outbox.policy.repair_event import Reprojection, reprojection

KEY = Key("article", "7")


@pytest.mark.parametrize(
    ("truth", "held", "viewed", "wanted"),
    [
        # The view keeps it: a refresh, there or gone.
        (Truth(KEY, "{}"), 3, True, ("refresh", None, None, None)),
        (Truth(KEY), 6, True, ("refresh", None, None, None)),
        # Gone, and perhaps under a routing that nobody asked Elasticsearch for.
        (Truth(KEY, routed=True), None, True, ("refresh", None, None, None)),
        # Documents in events: the newest one's payload again.
        (Truth(KEY, '{"a": 1}', 8, "r"), 8, False, ("upsert", 8, '{"a": 1}', "r")),
        # Elasticsearch is ahead (a hand edit): an equal version passes.
        (Truth(KEY, "{}", 5), 9, False, ("upsert", 9, "{}", None)),
        # Its newest event was a delete.
        (Truth(KEY, None, 8), 7, False, ("delete", 8, None, None)),
    ],
)
def test_a_wish_becomes_an_event(
    truth: Truth, held: int | None, viewed: bool, wanted: tuple[str, int | None, str | None, str | None]
) -> None:
    assert reprojection(truth, held, viewed=viewed) == Reprojection("article", "7", *wanted)


@pytest.mark.parametrize("viewed", [True, False])
def test_what_nobody_knows_becomes_nothing(viewed: bool) -> None:
    assert reprojection(Truth(KEY), None, viewed=viewed) is None
