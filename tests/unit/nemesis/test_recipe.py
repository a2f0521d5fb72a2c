"""What a run contains follows from its seed, fits together, and is shrunk to what it fails by."""

import pytest

from tests.nemesis.ids import MADE_BY
from tests.nemesis.parts import PARTS
from tests.nemesis.recipe import NOT_WITH_KAFKA, SCHEMA_ACTS, SETTINGS, compose
from tests.nemesis.schedule import DECKS, GAPS


def test_among_fifty_seeds_are_all_ingredients() -> None:
    met = set[str]().union(*(compose(seed).ingredients for seed in range(1, 51)))
    faults = {kind for deck in DECKS.values() for kind in deck}
    assert met >= {*PARTS, *SETTINGS, *SCHEMA_ACTS, *faults, *(f"ids:{kind}" for kind in MADE_BY)}


@pytest.mark.parametrize("kafka", [None, True])
def test_what_a_run_contains_fits_together(kafka: bool | None) -> None:
    for recipe in (compose(seed, kafka=kafka) for seed in range(1, 201)):
        assert recipe.decks.keys() <= GAPS.keys()
        assert not (recipe.has("kafka") and recipe.ingredients & NOT_WITH_KAFKA)
        assert not recipe.has("sequence_back") or (recipe.has("producer-versions") and not recipe.has("drafts"))
        assert {act for deck in recipe.decks.values() for act in deck} <= recipe.ingredients | {"move", "partition"}
        assert sum(recipe.weights.values()) < 0.9  # the rest is payloads
