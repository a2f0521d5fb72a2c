"""Owns the branches of a view: what it joins, without alternatives.

A branch takes one arm of every UNION. Each occurrence and condition has the regions around it: nullable sides of outer
joins, and subqueries that may be empty."""

from collections.abc import Iterator

from outbox.policy.derive.facts import Catalogue, Relation
from outbox.policy.derive.frames import Frame
from outbox.policy.derive.occurrences import Condition, NotReadable, Occurrence, Place
from outbox.policy.derive.terms import Term

MOST_BRANCHES = 2_000


class Branch:
    def __init__(self, catalogue: Catalogue, picked: tuple[int, ...]) -> None:
        self.catalogue = catalogue
        self.occurrences: list[Occurrence] = []
        self.conditions: list[Condition] = []
        self.alternatives: list[int] = []
        self._picked = picked
        self._names = 0
        query = catalogue.relations[catalogue.view].query
        if query is None:
            raise NotReadable("it is not a view")
        self._top = Frame(self, query, None, Place())

    def output(self, name: str) -> Term | None:
        columns = self.catalogue.relations[self.catalogue.view].columns.values()
        return self._top.output(next(each.number for each in columns if each.name == name))

    def pick(self, number: int) -> int:
        place = len(self.alternatives)
        self.alternatives.append(number)
        return self._picked[place] if place < len(self._picked) else 0

    def name(self) -> int:
        self._names += 1
        return self._names

    def add(self, relation: Relation, place: Place) -> Occurrence:
        made = Occurrence(len(self.occurrences), relation, place.regions, place.frames)
        self.occurrences.append(made)
        return made


def branches(catalogue: Catalogue, wanted: tuple[str, ...]) -> Iterator[tuple[Branch, dict[str, Term | None]]]:
    """Every branch, with the view's columns of these names. Raises NotReadable."""
    rest: list[tuple[int, ...]] = [()]
    for _ in range(MOST_BRANCHES):
        if not rest:
            return
        picked = rest.pop()
        branch = Branch(catalogue, picked)
        outputs = {name: branch.output(name) for name in wanted}
        for place in range(len(picked), len(branch.alternatives)):
            before = picked + (0,) * (place - len(picked))
            rest.extend((*before, other) for other in range(1, branch.alternatives[place]))
        yield branch, outputs
    raise NotReadable(f"it has more than {MOST_BRANCHES:,} alternatives (UNION)")
