"""Owns I18 and I19: what the index holds of the view's documents, and where, against the view at the end. Pure."""

from __future__ import annotations

from labs.checks import holds, nobody
from labs.experiment import CheckResult
from tests.nemesis.evidence import Evidence, PlacedDocument
from tests.nemesis.joined import REFRESH
from tests.nemesis.parts import PARTS

UNROUTED = PlacedDocument("", "")
SWAPPED = "_swapped"


def parts(found: Evidence) -> list[str]:
    """The parts of the load that the run had."""
    return [name.removesuffix(SWAPPED) for name in found.about if name.endswith(SWAPPED)]


def by_part(found: Evidence) -> dict[str, list[str]]:
    """The view's documents of each part."""
    kinds = {part: tuple(f"{kind}:" for kind in PARTS[part].kinds) for part in parts(found)}
    return {part: [name for name in found.view if name.startswith(kind)] for part, kind in kinds.items()}


def stale(found: Evidence) -> list[str]:
    """Documents of the view that are there, and not what it says: wherever they stand."""
    there = {name: found.standing.get(name, ()) for name in found.view}
    return [name for name, places in there.items() if any(one.digest != found.view[name].digest for one in places)]


def lost(found: Evidence) -> list[str]:
    return [name for name in found.view if name not in found.standing]


def back_again(found: Evidence) -> list[str]:
    """Documents of the view's types that are there, and that the view does not have."""
    return [name for name in found.joined - found.view.keys() if name in found.standing]


def misplaced(found: Evidence) -> list[str]:
    """Documents of any type that stand twice, or where they should not."""
    right = {name: found.view.get(name, UNROUTED).routing for name in found.standing.keys() - set(back_again(found))}
    return [name for name, routing in right.items() if [one.routing for one in found.standing[name]] != [routing]]


def as_the_view_says(found: Evidence) -> CheckResult:
    """The view is the truth, and content is compared: a version of theirs says nothing."""
    missing, other, back = lost(found), stale(found), back_again(found)
    refreshes = sum(entry.op == REFRESH for entry in found.committed)
    swapped = {part: found.about[f"{part}{SWAPPED}"] for part in parts(found)}
    told = f"{refreshes} refreshes, pairs of transactions that committed in the other order:"
    told += f" {', '.join(f'{n} {part}' for part, n in swapped.items()) or 'none'};"
    told += f" {len(found.view)} documents compared with the view, {len(missing)} lost, {len(other)} stale;"
    told += f" {len(found.joined - found.view.keys())} deleted, {len(back)} are back"
    expected = "every document of the view is what it says, and no other is there"
    return _unless(found, "Joined documents", expected, told, {*missing, *other, *back})


def in_one_place(found: Evidence) -> CheckResult:
    wrong = misplaced(found)
    routed = sum(bool(one.routing) for one in found.view.values())
    told = f"{sum(map(len, found.standing.values()))} documents on all shards, {routed} with a routing by the view;"
    told += f" {len(wrong)} twice or elsewhere" + (f" (first: {found.standing[wrong[0]]})" if wrong else "")
    expected = "every document stands once, where the view says"
    return _unless(found, "Each document in one place", expected, told, {*wrong})


def _unless(found: Evidence, name: str, expected: str, told: str, wrong: set[str]) -> CheckResult:
    first = {entry.document: entry.id for entry in found.committed if entry.document in sorted(wrong)[:1]}
    finding = nobody(name, expected, told, list(first.values()), "standing, view, ledger")
    return finding if first or not wrong else holds(name, expected, told, False, finding.evidence)
