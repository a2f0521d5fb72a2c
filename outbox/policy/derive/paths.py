"""Owns the way from a changed row to the ids of the documents that it is in: the shortest chain of conditions.

Only conditions that hold whenever the row matters are used, and nothing else of the view: what is found is at least
what the change touches."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from outbox.policy.derive.branches import Branch
from outbox.policy.derive.occurrences import Condition, Occurrence
from outbox.policy.derive.terms import ColumnRef, Term

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")
_UNLINKED = "no condition of the view that must hold leads from it to entity_id"
_RANGE_COST = 20
"""A comparison other than by equality leads to many rows: worth a detour over this many equalities."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A table that the query reads, with the columns by which its rows are found."""

    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdPath:
    """By a column of the row, or by a query over it. `reason`: the conditions that lead there."""

    id_column: str | None
    via: str | None
    reason: str
    hops: tuple[Hop, ...] = ()


class NoWay(Exception):
    """No condition leads from the table to the ids; its text says why."""


def way(branch: Branch, changed: Occurrence, root: Term) -> IdPath:
    """From a row of `changed` to the ids `root`. Raises NoWay."""
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
        if own is not None and self._changed.relation is not None:
            return IdPath(self._changed.relation.columns[own.number].name, None, self._direct_reason(own))
        cost, before = self._distances()
        selected, ends = self._ends(cost)
        needed = {step for end in ends for step in _steps(end, before)}
        calls = [call for each in needed if (call := self._branch.occurrences[each].call) is not None]
        needed |= {step for call in calls for end in call.occurrences for step in _steps(end, before)}
        if not needed <= cost.keys():
            raise NoWay(_UNLINKED)
        chosen = sorted(needed - {self._changed.number}, key=lambda each: (cost[each], each))
        return self._by_query(selected, chosen, before)

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
        """The cost to each occurrence that can be reached, and the step before it."""
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
        """What each step costs, both ways."""
        edges: dict[int, dict[int, int]] = {}
        for one, other, cost in (*self._stated(), *self._implied_pairs()):
            for here, there in ((one, other), (other, one)):
                edges.setdefault(here, {})[there] = min(cost, edges.get(here, {}).get(there, cost))
        return edges

    def _stated(self) -> Iterator[tuple[int, int, int]]:
        for each in self._conditions:
            if len(each.occurrences) == 2:
                one, other = sorted(each.occurrences)
                yield one, other, 1 if each.equality or each.presence else _RANGE_COST

    def _implied_pairs(self) -> Iterator[tuple[int, int, int]]:
        """Two columns that are equal to a third."""
        for members in set(self._same.values()):
            for one, other in combinations(sorted(members), 2):
                if one.occurrence != other.occurrence and self._comparable(one, other):
                    yield one.occurrence, other.occurrence, 1

    def _comparable(self, one: ColumnRef, other: ColumnRef) -> bool:
        """Columns with the same text may be of two kinds: id::text = ref."""
        kinds = {self._branch.kinds.get(each) for each in (one, other)}
        return len(kinds) == 1 and None not in kinds

    # The query

    def _by_query(self, selected: Term, chosen: list[int], before: Mapping[int, int]) -> IdPath:
        names = self._names(chosen)
        known = [self._changed.number]
        tests: list[Term] = []
        hops: list[Hop] = []
        for each in chosen:
            linked = self._links(each, known, before)
            tests += linked
            known.append(each)
            relation = self._branch.occurrences[each].relation
            if relation is not None:
                columns = dict.fromkeys(c.number for test in linked for c in test.columns if c.occurrence == each)
                hops.append(Hop(relation.sql, tuple(relation.columns[number].quoted for number in columns)))
        text = f"select {self._sql(selected, names)}"
        if chosen:
            text += f" from {self._from(chosen, names)}"
        conditions = dict.fromkeys(self._sql(test, names) for test in tests)
        if conditions:
            text += f" where {' and '.join(conditions)}"
        names[self._changed.number] = self._name_of(self._changed, {names[each] for each in chosen})
        reason = " and ".join(dict.fromkeys(self._sql(test, names) for test in tests))
        return IdPath(None, text, reason or "entity_id is computed from it", tuple(hops))

    def _links(self, here: int, known: list[int], before: Mapping[int, int]) -> list[Term]:
        """The conditions between an occurrence and those before it."""
        around = {here, *known}
        found = [
            _turned(each.term, here)
            for each in self._conditions
            if not each.presence and here in each.occurrences and each.occurrences <= around
        ]
        step = before.get(here)
        linked = any(here in each.occurrences and step in each.occurrences for each in self._conditions)
        return found if linked or step is None else [*found, *self._implied(step, here)]

    def _implied(self, one: int, other: int) -> Iterator[Term]:
        for members in set(self._same.values()):
            for left, right in product(sorted(members), repeat=2):
                if (left.occurrence, right.occurrence) == (one, other) and self._comparable(left, right):
                    yield Term((right, " = ", left))

    def _from(self, chosen: list[int], names: Mapping[int, str]) -> str:
        """Functions come last: they are called with rows of the tables."""
        tables, calls = [], []
        for each in chosen:
            occurrence, name = self._branch.occurrences[each], names[each]
            if occurrence.relation is not None:
                sql = occurrence.relation.sql
                tables.append(sql if sql == name else f"{sql} as {name}")
            elif occurrence.call is not None:
                columns = ", ".join(f"c{number}" for number in range(1, occurrence.width + 1))
                calls.append(f"lateral {self._sql(occurrence.call, names)} as {name} ({columns})")
        return " cross join ".join([", ".join(tables)] * bool(tables) + calls) if calls else ", ".join(tables)

    def _names(self, chosen: list[int]) -> dict[int, str]:
        names = {self._changed.number: "changed"}
        for each in chosen:
            names[each] = self._name_of(self._branch.occurrences[each], set(names.values()))
        return names

    def _name_of(self, occurrence: Occurrence, taken: set[str]) -> str:
        relation = occurrence.relation
        name = relation.name if relation is not None else "rows_of"
        quoted = relation.quoted if relation is not None else name
        for number in range(2, len(taken) + 3):
            if quoted not in taken:
                return quoted
            again = f"{name[:12]}_{number}"
            quoted = again if _PLAIN.match(again) else '"' + again.replace('"', '""') + '"'
        raise AssertionError("there are fewer names than numbers")

    def _sql(self, term: Term, names: Mapping[int, str]) -> str:
        return "".join(
            part
            if isinstance(part, str)
            else f"{names[part.occurrence]}.{self._branch.occurrences[part.occurrence].column(part.number)}"
            for part in term.parts
        )

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
