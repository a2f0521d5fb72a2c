"""What a run contains follows from its seed, fits together, and is shrunk to what it fails by."""

from pathlib import Path

import pytest

from tests.nemesis.ids import MADE_BY, Ids
from tests.nemesis.parts import PARTS, view
from tests.nemesis.recipe import NOT_WITH_KAFKA, SCHEMA_ACTS, SETTINGS, Recipe, compose, fixed
from tests.nemesis.schedule import DECKS, GAPS, KAFKA_DECKS
from tests.nemesis.shrink import shrink

SEEDS = range(1, 21)


def test_the_same_seed_composes_the_same_run_and_another_seed_another() -> None:
    assert [compose(seed) for seed in SEEDS] == [compose(seed) for seed in SEEDS]
    assert len({compose(seed).ingredients for seed in SEEDS}) == len(SEEDS)


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


def test_a_fixed_run_has_every_fault_and_the_three_parts_that_it_had() -> None:
    for recipe, decks in ((fixed(), DECKS), (fixed(kafka=True), KAFKA_DECKS)):
        assert recipe.decks == {lane: tuple(deck) for lane, deck in decks.items()}
        assert recipe.parts == ["joined", "routed", "linked"]
        assert recipe.weights == {name: PARTS[name].share for name in recipe.parts}


def test_what_is_taken_away_takes_its_lane_with_it() -> None:
    without = fixed().without(["sigstop", "linked"])
    assert "freezer" not in without.decks
    assert "nemesis_books" not in view(without.parts)


@pytest.mark.parametrize("kind", MADE_BY)
def test_names_stand_for_ids_that_differ_and_no_other_text_is_changed(kind: str) -> None:
    ids = Ids(kind)
    assert len({ids.typed(f"p{n}") for n in range(300)}) == 300
    assert ids.typed("tenant 3") == "tenant 3"
    assert all(ids.typed(ids.typed(f"p{n}")) == ids.typed(f"p{n}") for n in range(300))


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
