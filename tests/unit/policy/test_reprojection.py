"""Which event a person's wish becomes: its version, its text, its routing."""

import pytest

from outbox.policy.drift import Key, Truth
from outbox.policy.repair_event import Reprojection, reprojection

KEY = Key("article", "7")


@pytest.mark.parametrize(
    ("truth", "known", "held", "looked_up", "refreshed", "wanted"),
    [
        # The view has it at its own version: the projector reads it again.
        (Truth(KEY, "{}", 5), (4, None), 5, True, False, ("upsert", 5, None, None)),
        # Elasticsearch is ahead (a hand edit, a restored database): the text goes along, at an equal version.
        (Truth(KEY, "{}", 5), (4, None), 9, True, False, ("upsert", 9, "{}", None)),
        # The view names no version: a refresh, there or gone, where its last event was.
        (Truth(KEY, "{}", None), (4, "r"), 3, True, True, ("refresh", None, None, "r")),
        (Truth(KEY, "{}", None), None, None, True, False, ("refresh", None, None, None)),
        (Truth(KEY), (4, "r"), 6, True, True, ("refresh", None, None, "r")),
        # Gone from a view with versions: looked up, it becomes a versioned delete.
        (Truth(KEY), (4, "r"), 6, True, False, ("upsert", 6, None, "r")),
        # Documents in events: the newest one's payload again.
        (Truth(KEY, '{"a": 1}', 8, "r"), (8, "r"), 8, False, False, ("upsert", 8, '{"a": 1}', "r")),
        # Its newest event was a delete.
        (Truth(KEY, None, 8), (8, None), 7, False, False, ("delete", 8, None, None)),
        # Only Elasticsearch knows it: it goes.
        (Truth(KEY), None, 3, False, False, ("delete", 3, None, None)),
    ],
)
def test_a_wish_becomes_an_event(
    truth: Truth,
    known: tuple[int, str | None] | None,
    held: int | None,
    looked_up: bool,
    refreshed: bool,
    wanted: tuple[str, int | None, str | None, str | None],
) -> None:
    assert reprojection(truth, known, held, looked_up=looked_up, refreshed=refreshed) == Reprojection(
        "article", "7", *wanted
    )


def test_what_nobody_knows_becomes_nothing() -> None:
    assert reprojection(Truth(KEY), None, None, looked_up=True, refreshed=True) is None
