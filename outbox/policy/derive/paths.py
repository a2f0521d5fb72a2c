"""Owns the way from a changed row to the ids of the documents that it is in: the shortest chain of conditions.

Only conditions that hold whenever the row matters are used, and nothing else of the view: what is found is at least
what the change touches."""

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from outbox.policy.derive.branches import Branch
from outbox.policy.derive.occurrences import Condition, Occurrence
from outbox.policy.derive.terms import ColumnRef, Term

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")
_UNLINKED = "no condition of the view that must hold leads from it to entity_id"
_RANGE_COST = 20
"""A comparison other than by equality leads to many rows: worth a detour over this many equalities."""


@dataclass(frozen=True, slots=True)
class IdPath:
    """By a column of the row, or by a query over it. `reason`: the conditions that lead there."""

    id_column: str | None
    via: str | None
    reason: str


class NoWay(Exception):
    """No condition leads from the table to the ids; its text says why."""


def way(branch: Branch, changed: Occurrence, root: Term) -> IdPath:
    if root.barriers & changed.frames:
        raise NoWay(
            "a row of it can change the documents of other rows: the view has a window function without the id in its "
            "PARTITION BY, a LIMIT, or a DISTINCT ON without the id above it"
        )
    if not root.strict and any(branch.occurrences[each].regions for each in root.occurrences):
        raise NoWay("entity_id is computed from a table that an outer join may leave out")
    return _Search(branch, changed, root).way()


class _Search:
    def __init__(self, branch: Branch, changed: Occurrence, root: Term) -> None:
        self._branch, self._changed, self._root = branch, changed, root
        self._conditions = _in_force(branch, changed, root)
        self._same = _classes(each.same_text for each in self._conditions if each.same_text is not None)
        self._goals = self._same_as(root.column) if root.column is not None else frozenset()

    def way(self) -> IdPath:
        own = min((each for each in self._goals if each.occurrence == self._changed.number), default=None)
        if own is not None:
            return IdPath(self._changed.relation.columns[own.number].name, None, self._direct_reason(own))
        cost, before = self._distances()
        selected, ends = self._ends(cost)
        needed = {step for end in ends for step in _steps(end, before)}
        chosen = sorted(needed - {self._changed.number}, key=lambda each: (cost[each], each))
        return self._by_query(selected, chosen)

    def _same_as(self, column: ColumnRef) -> frozenset[ColumnRef]:
        return self._same.get(column, frozenset({column}))

    def _ends(self, cost: Mapping[int, int]) -> tuple[Term, list[int]]:
        """What the query selects, and the occurrences that it needs for that."""
        near = [each for each in self._goals if each.occurrence in cost]
        if near:
            nearest = min(near, key=lambda each: (cost[each.occurrence], each != self._root.column, each))
            return Term((nearest,)), [nearest.occurrence]
        if not self._root.occurrences <= cost.keys():
            raise NoWay(_UNLINKED)
        return self._root, sorted(self._root.occurrences)

    def _distances(self) -> tuple[dict[int, int], dict[int, int]]:
        edges = self._edges()
        cost, before = {self._changed.number: 0}, {}
        rest = [(0, self._changed.number)]
        while rest:
            so_far, here = heapq.heappop(rest)
            for there, more in edges.get(here, {}).items():
                if so_far + more < cost.get(there, so_far + more + 1):
                    cost[there], before[there] = so_far + more, here
                    heapq.heappush(rest, (so_far + more, there))
        return cost, before

    def _edges(self) -> dict[int, dict[int, int]]:
        edges: dict[int, dict[int, int]] = {}
        for each in self._conditions:
            if len(each.occurrences) == 2:
                one, other = each.occurrences
                cost = 1 if each.equality else _RANGE_COST
                for here, there in ((one, other), (other, one)):
                    edges.setdefault(here, {})[there] = min(cost, edges.get(here, {}).get(there, cost))
        return edges

    # The query

    def _by_query(self, selected: Term, chosen: list[int]) -> IdPath:
        names = self._names(chosen)
        around = {self._changed.number}
        tests: list[Term] = []
        for each in chosen:
            around.add(each)
            tests += self._links(each, around)
        text = f"select {self._sql(selected, names)}"
        if chosen:
            text += f" from {self._from(chosen, names)}"
        conditions = dict.fromkeys(self._sql(test, names) for test in tests)
        if conditions:
            text += f" where {' and '.join(conditions)}"
        names[self._changed.number] = self._name_of(self._changed, {names[each] for each in chosen})
        reason = " and ".join(dict.fromkeys(self._sql(test, names) for test in tests))
        return IdPath(None, text, reason or "entity_id is computed from it")

    def _links(self, here: int, around: set[int]) -> list[Term]:
        joining = (each for each in self._conditions if here in each.occurrences and each.occurrences <= around)
        return [_turned(each.term, here) for each in joining]

    def _from(self, chosen: list[int], names: Mapping[int, str]) -> str:
        tables = ((self._branch.occurrences[each].relation.sql, names[each]) for each in chosen)
        return ", ".join(sql if sql == name else f"{sql} as {name}" for sql, name in tables)

    def _names(self, chosen: list[int]) -> dict[int, str]:
        names = {self._changed.number: "changed"}
        for each in chosen:
            names[each] = self._name_of(self._branch.occurrences[each], set(names.values()))
        return names

    def _name_of(self, occurrence: Occurrence, taken: set[str]) -> str:
        name, quoted = occurrence.relation.name, occurrence.relation.quoted
        for number in range(2, len(taken) + 3):
            if quoted not in taken:
                return quoted
            again = f"{name[:12]}_{number}"
            quoted = again if _PLAIN.match(again) else '"' + again.replace('"', '""') + '"'
        raise AssertionError("there are fewer names than numbers")

    def _sql(self, term: Term, names: Mapping[int, str]) -> str:
        def shown(column: ColumnRef) -> str:
            relation = self._branch.occurrences[column.occurrence].relation
            return f"{names[column.occurrence]}.{relation.columns[column.number].quoted}"

        return "".join(shown(part) if isinstance(part, ColumnRef) else part for part in term.parts)

    def _direct_reason(self, own: ColumnRef) -> str:
        names = {each.number: self._name_of(each, set()) for each in self._branch.occurrences}
        own_name = self._sql(Term((own,)), names)
        if own == self._root.column:
            return f"{own_name} is its entity_id"
        assert self._root.column is not None
        return f"{own_name} = {self._sql(Term((self._root.column,)), names)}"


def _in_force(branch: Branch, changed: Occurrence, root: Term) -> list[Condition]:
    """Conditions that hold in every row of the view that the change can touch. The changed row is there, and the row
    with the id; a strict condition that holds says that its tables are there too, outer join or not."""
    there = set(changed.regions)
    for each in root.occurrences:
        there |= branch.occurrences[each].regions
    while True:
        found = [
            each for each in branch.conditions if each.regions <= there and not each.term.barriers & changed.frames
        ]
        more = {region for each in found for one in each.occurrences for region in branch.occurrences[one].regions}
        if more <= there:
            return found
        there |= more


def _classes(pairs: Iterable[tuple[ColumnRef, ColumnRef]]) -> dict[ColumnRef, frozenset[ColumnRef]]:
    """Columns that are equal through any chain of pairs."""
    found: dict[ColumnRef, frozenset[ColumnRef]] = {}
    for one, other in pairs:
        merged = found.get(one, frozenset({one})) | found.get(other, frozenset({other}))
        found.update(dict.fromkeys(merged, merged))
    return found


def _turned(term: Term, first: int) -> Term:
    """An equality of two columns begins with that of the table that is joined, as people write it."""
    match term.parts:
        case (ColumnRef() as left, " = ", ColumnRef() as right) if left.occurrence != first:
            return Term((right, " = ", left))
    return term


def _steps(end: int, before: Mapping[int, int]) -> Iterator[int]:
    yield end
    while end in before:
        end = before[end]
        yield end
