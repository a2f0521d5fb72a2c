"""What a run contains follows from its seed, fits together, and is shrunk to what it fails by."""

from pathlib import Path

import pytest

from tests.nemesis.ids import MADE_BY
from tests.nemesis.parts import PARTS
from tests.nemesis.recipe import NOT_WITH_KAFKA, SCHEMA_ACTS, SETTINGS, Recipe, compose
from tests.nemesis.schedule import DECKS, GAPS
from tests.nemesis.shrink import shrink


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


def test_a_run_that_fails_is_shrunk_to_the_fewest_ingredients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[frozenset[str]] = []

    def broken(recipe: Recipe, folder: Path) -> set[str]:
        tried.append(recipe.ingredients)
        other = {"I1"} if "es_cut" in recipe.ingredients else set[str]()
        return other | ({"I18"} if {"carts", "kill_9"} <= recipe.ingredients else set())

    whole = Recipe(frozenset({"carts", "kill_9", "joined", "verify", "prune", "ids:uuid", "replay"}))
    assert shrink(whole, tmp_path, broken, lambda _: None) == 1
    assert capsys.readouterr().out == "fixed fails with carts, kill_9\n"
    assert len(tried) < 20
    assert shrink(whole.without(["carts"]), tmp_path, broken, lambda _: None) == 0
