"""Takes ingredients away from a run that fails, for as long as it fails in the same way. Each try is a whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.nemesis.recipe import Recipe, in_order

Broken = Callable[[Recipe, Path], set[str]]


def shrink(recipe: Recipe, folder: Path, broken: Broken, say: Callable[[str], None]) -> int:
    """Halves first, then quarters, down to single ones. 1: it fails, and the fewest ingredients are printed; 0: the run
    with all of them held."""
    wanted = broken(recipe, folder / "0")
    if not wanted:
        say("every invariant held: there is nothing to shrink")
        return 0
    say(f"broken: {', '.join(sorted(wanted))}")
    left, number = recipe, 0
    size = (len(left.ingredients) + 1) // 2
    while size:
        names = in_order(left.ingredients)
        for away in (names[at : at + size] for at in range(0, len(names), size)):
            number += 1
            fewer = left.without(away)
            still = broken(fewer, folder / str(number)) & wanted
            say(f"run {number}, without {', '.join(away)}: {'fails too' if still else 'holds, so it stays'}")
            left = fewer if still else left
        size //= 2
    print(f"{recipe.name} fails with {left or 'payloads alone'}")
    return 1
