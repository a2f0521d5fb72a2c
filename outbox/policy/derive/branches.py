"""Owns what a view joins: its table occurrences and the conditions between them, in branches without alternatives.

A branch takes one arm of every UNION, one operand of every OR between tables and one of every COALESCE. Each occurrence
and condition has the regions around it: nullable sides of outer joins, and subqueries that may be empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from outbox.policy.derive.facts import Catalogue, Relation
from outbox.policy.derive.terms import ColumnRef, Term, Terms
from outbox.policy.derive.tree import Node, every_node, nodes_of

MOST_BRANCHES = 2_000
_INNER, _LEFT, _FULL, _RIGHT = range(4)
_RELATION, _SUBQUERY, _JOIN, _FUNCTION, _TABLE_FUNCTION, _VALUES, _CTE, _, _RESULT, _GROUP = range(10)
_EXISTS, _ANY, _SCALAR = 0, 2, 4
# Their expressions are read by the join tree, or where they are referred to.
_APART = {"rtable", "cteList", "setOperations", "jointree", "rteperminfos"}


class NotReadable(Exception):
    """The view has something that nothing can be derived from."""


@dataclass(eq=False, slots=True)
class Occurrence:
    """A table as often as it is joined; or a function that returns rows, whose call is in `call`."""

    number: int
    relation: Relation | None
    regions: frozenset[int]
    frames: frozenset[int]
    reads: set[int] = field(default_factory=set)
    """Numbers of columns; 0 is the whole row."""
    call: Term | None = None
    width: int = 0
    """The number of columns of those rows."""

    def column(self, number: int) -> str:
        return self.relation.columns[number].quoted if self.relation is not None else f"c{number}"


@dataclass(frozen=True, slots=True)
class Condition:
    """It holds for all rows that matter, once its regions are not empty. Null never meets it. `same_text`: two
    columns with one text. `presence`: no condition, but a function beside the row that it is called with."""

    term: Term
    regions: frozenset[int]
    occurrences: frozenset[int]
    equality: bool = False
    same_text: tuple[ColumnRef, ColumnRef] | None = None
    presence: bool = False


class Place(NamedTuple):
    """What is around a part of the view."""

    regions: frozenset[int] = frozenset()
    frames: frozenset[int] = frozenset()

    def within(self, *regions: int) -> Place:
        return self._replace(regions=self.regions | set(regions))


class _Source(NamedTuple):
    """One entry of a range table. `touch` notes that a column is read."""

    term: Callable[[int], Term | None]
    touch: Callable[[int], None] = lambda number: None


class Branch:
    """One way through the view's alternatives."""

    def __init__(self, catalogue: Catalogue, picked: tuple[int, ...]) -> None:
        self.catalogue = catalogue
        self.occurrences: list[Occurrence] = []
        self.conditions: list[Condition] = []
        self.alternatives: list[int] = []
        """The number of choices at each pick, in order."""
        self.kinds: dict[ColumnRef, str | None] = {}
        self._picked = picked
        self._names = 0
        query = catalogue.relations[catalogue.view].query
        if query is None:
            raise NotReadable("it is not a view")
        self._top = _Frame(self, query, None, Place())

    def output(self, name: str) -> Term | None:
        columns = self.catalogue.relations[self.catalogue.view].columns.values()
        return self._top.output(next(each.number for each in columns if each.name == name))

    def pick(self, number: int) -> int:
        place = len(self.alternatives)
        self.alternatives.append(number)
        return self._picked[place] if place < len(self._picked) else 0

    def name(self) -> int:
        """A new one, for a region or a frame."""
        self._names += 1
        return self._names

    def add(self, relation: Relation | None, place: Place, call: Term | None = None, width: int = 0) -> Occurrence:
        made = Occurrence(len(self.occurrences), relation, place.regions, place.frames, call=call, width=width)
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
    raise NotReadable(f"it has more than {MOST_BRANCHES:,} alternatives (UNION, OR, COALESCE, CASE)")


class _Frame:
    """One SELECT of the view, with its own range table."""

    def __init__(self, branch: Branch, query: Node, parent: _Frame | None, place: Place) -> None:
        self.branch, self.query, self.parent = branch, query, parent
        self.number = branch.name()
        self.place = place._replace(frames=place.frames | {self.number})
        if _always_one_row(query):
            self.place = self.place.within(branch.name())
        self._sources: dict[int, _Source] = {}
        self._outer: _Frame | None = None
        self._terms = Terms(branch.catalogue, self._variable, branch.pick)
        self._arm: _Frame | None = None
        self._read()

    def output(self, number: int) -> Term | None:
        """An output column, in terms of the tables below."""
        entry = next(each for each in self.query.nodes("targetList") if each.number("resno") == number)
        term = self._arm.output(number) if self._arm is not None else self._terms.of(entry.node("expr"))
        if term is not None and not _is_apart(self.query, entry):
            return replace(term, barriers=term.barriers | {self.number})
        return term

    def _read(self) -> None:
        operation = self.query.node("setOperations")
        if operation is not None:
            arms = list(_arms(operation))
            chosen = self._entry(arms[self.branch.pick(len(arms))]).node("subquery")
            assert chosen is not None
            self._arm = _Frame(self.branch, chosen, self, self.place)
            return
        for index, entry in enumerate(self.query.nodes("rtable"), 1):
            if entry.number("rtekind") == _GROUP:
                self._sources[index] = self._alias(entry.nodes("groupexprs"))
        tree = self.query.node("jointree")
        if tree is not None:
            self._item(tree, self.place)
        self._walk(
            Node("", {name: self.query.fields[name] for name in self.query.fields if name not in _APART}), self.place
        )

    def _entry(self, index: int) -> Node:
        return self.query.nodes("rtable")[index - 1]

    # FROM and WHERE

    def _item(self, item: Node, place: Place) -> None:
        if item.label == "RANGETBLREF":
            index = item.number("rtindex")
            self._sources[index] = self._source(self._entry(index), place)
        elif item.label == "FROMEXPR":
            for each in item.nodes("fromlist"):
                self._item(each, place)
            self._condition(item.node("quals"), place)
        else:
            self._join(item, place)

    def _join(self, join: Node, place: Place) -> None:
        """A row of the nullable side matters only where ON holds; of the other side also where it does not."""
        kind = join.number("jointype")
        left = place.within(self.branch.name()) if kind in (_RIGHT, _FULL) else place
        right = place.within(self.branch.name()) if kind in (_LEFT, _FULL) else place
        for name, side in (("larg", left), ("rarg", right)):
            item = join.node(name)
            if item is not None:
                self._item(item, side)
        index = join.number("rtindex")
        if index:
            self._sources[index] = self._alias(self._entry(index).nodes("joinaliasvars"))
        self._condition(join.node("quals"), place.within(*left.regions, *right.regions))

    def _source(self, entry: Node, place: Place) -> _Source:
        kind = entry.number("rtekind")
        if kind == _RELATION:
            return self._relation(entry, place)
        if kind == _SUBQUERY:
            return self._subquery(entry.node("subquery"), self, place)
        if kind == _CTE:
            return self._common_table(entry, place)
        if kind == _FUNCTION:
            return self._function(entry, place)
        if kind in (_TABLE_FUNCTION, _VALUES, _RESULT):
            self._walk(entry, place)
            return _Source(lambda number: None)
        raise NotReadable("it reads something of a sort that this version does not know")

    def _relation(self, entry: Node, place: Place) -> _Source:
        relation = self.branch.catalogue.relations[entry.number("relid")]
        if entry.node("tablesample") is not None:
            raise NotReadable(f"it takes a random sample of {relation.sql} (TABLESAMPLE). Leave that out")
        if relation.query is not None:
            return self._subquery(relation.query, None, place)
        occurrence = self.branch.add(relation, place)
        return _Source(lambda number: _column(occurrence, number), occurrence.reads.add)

    def _subquery(self, query: Node | None, parent: _Frame | None, place: Place) -> _Source:
        assert query is not None
        frame = _Frame(self.branch, query, parent, place)
        return _Source(lambda number: frame.output(number) if number > 0 else None)

    def _common_table(self, entry: Node, place: Place) -> _Source:
        frame: _Frame | None = self
        for _ in range(entry.number("ctelevelsup")):
            frame = frame.parent if frame is not None else None
        assert frame is not None
        name = entry.text("ctename")
        table = next(each for each in frame.query.nodes("cteList") if each.text("ctename") == name)
        if table.true("cterecursive"):
            raise NotReadable(f"its query {name} is recursive (WITH RECURSIVE)")
        return self._subquery(table.node("ctequery"), frame, place)

    def _function(self, entry: Node, place: Place) -> _Source:
        """Rows of a function of a row beside it, such as unnest(tag_ids)."""
        self._walk(entry, place)
        calls = [each.node("funcexpr") for each in entry.nodes("functions")]
        call = self._terms.of(calls[0]) if len(calls) == 1 else None
        described = any(each.fields.get("funccoltypes") for each in entry.nodes("functions"))
        if call is None or not call.strict or described or entry.true("funcordinality"):
            return _Source(lambda number: None)
        occurrence = self.branch.add(None, place, call, len(_names(entry)))
        around = call.occurrences | {occurrence.number}
        self.branch.conditions.append(Condition(call, place.regions, around, presence=True))
        return _Source(lambda number: _column(occurrence, number))

    def _alias(self, values: list[Node]) -> _Source:
        """Columns that are expressions over other entries: of a join, or of GROUP BY."""

        def touch(number: int) -> None:
            for value in values if number == 0 else [values[number - 1]]:
                self._walk(value, self.place)

        return _Source(lambda number: self._terms.of(values[number - 1]) if number > 0 else None, touch)

    # Conditions

    def _condition(self, node: Node | None, place: Place) -> None:
        """Record what must hold for a row to matter; anything else is only read."""
        if node is None:
            return
        sort = node.text("boolop") if node.label == "BOOLEXPR" else None
        if sort == "and":
            for each in node.nodes("args"):
                self._condition(each, place)
        elif sort == "or" and self._joins(node):
            self._walk(node, place)
            operands = node.nodes("args")
            self._condition(operands[self.branch.pick(len(operands))], place)
        elif sort == "or":
            self._alternative(node, place)
        elif node.label == "SUBLINK" and node.number("subLinkType") in (_EXISTS, _ANY):
            self._semi_join(node, place)
        elif node.label in ("OPEXPR", "SCALARARRAYOPEXPR"):
            self._compare(node, place)
        else:
            self._walk(node, place)

    def _alternative(self, node: Node, place: Place) -> None:
        """An operand of OR need not hold; but null is as good as false in it, as in the whole condition."""
        if node.label == "BOOLEXPR" and node.text("boolop") != "not":
            for each in node.nodes("args"):
                self._alternative(each, place)
        elif node.label == "SUBLINK":
            self._sublink(node, place, nulls_count=False)
        else:
            self._walk(node, place)

    def _joins(self, node: Node) -> bool:
        """Whether each operand speaks of two tables, and none has a subquery."""
        operands = [list(every_node(each)) for each in node.nodes("args")]
        entries = [{_entry_of(each) for each in inside if each.label == "VAR"} for inside in operands]
        return all(len(each) > 1 for each in entries) and not any(
            each.label == "SUBLINK" for inside in operands for each in inside
        )

    def _semi_join(self, link: Node, place: Place) -> None:
        query = link.node("subselect")
        assert query is not None
        frame = _Frame(self.branch, query, self, place)
        self._by_test(link, frame, place)

    def _by_test(self, link: Node, frame: _Frame, place: Place, *, nulls_count: bool = False) -> None:
        """Read `x in (select y ...)`. Where it is no condition, a null makes false null: then `nulls_count`."""
        test = link.node("testexpr")
        if test is None or test.text("boolop") == "or":
            return
        for each in test.nodes("args") if test.label == "BOOLEXPR" else [test]:
            self._walk(each, place)
            if each.label == "OPEXPR":
                sides = [self._side(side, frame) for side in each.nodes("args")]
                if not nulls_count or all(self._never_null(side, place) for side in sides):
                    self._compare_terms(each, sides, place)

    def _side(self, node: Node, frame: _Frame) -> Term | None:
        self._outer = frame
        try:
            return self._terms.of(node)
        finally:
            self._outer = None

    def _never_null(self, term: Term | None, place: Place) -> bool:
        if term is None or term.column is None:
            return False
        occurrence = self.branch.occurrences[term.column.occurrence]
        known = occurrence.relation is not None and occurrence.relation.columns[term.column.number].not_null
        return known and occurrence.regions <= place.regions

    def _compare(self, node: Node, place: Place) -> None:
        if not all(_is_variable(side) for side in node.nodes("args")):
            self._walk(node, place)
            return
        sides: list[Term | None] = []
        for side in node.nodes("args"):
            if side.label == "SUBLINK" and side.number("subLinkType") == _SCALAR:
                query = side.node("subselect")
                assert query is not None
                sides.append(_Frame(self.branch, query, self, place).output(1))
            else:
                self._walk(side, place)
                sides.append(self._terms.of(side))
        if node.label == "OPEXPR" or node.true("useOr"):
            self._compare_terms(node, sides, place)

    def _compare_terms(self, node: Node, sides: list[Term | None], place: Place) -> None:
        term = self._terms.comparison(node, sides)
        if term is None or len(term.occurrences) < 2 or not (term.strict or self._all_there(term, place)):
            return
        equality = node.label == "OPEXPR" and self.branch.catalogue.operators[node.number("opno")].equality
        same = self._same_text(node, sides) if equality else None
        self.branch.conditions.append(Condition(term, place.regions, term.occurrences, equality, same))

    def _all_there(self, term: Term, place: Place) -> bool:
        """Whether no outer join fills its tables with nulls, which it may take for a value."""
        return all(self.branch.occurrences[each].regions <= place.regions for each in term.occurrences)

    def _same_text(self, node: Node, sides: list[Term | None]) -> tuple[ColumnRef, ColumnRef] | None:
        kinds = {side and self.branch.catalogue.kind(side.type_oid) for side in sides}
        loose = node.number("inputcollid") in self.branch.catalogue.loose_collations
        left, right = (side.column if side is not None else None for side in sides)
        return None if len(kinds) > 1 or None in kinds or loose or left is None or right is None else (left, right)

    # Everything else that is read

    def _walk(self, top: Node, place: Place) -> None:
        """Note the columns that an expression reads, and read its subqueries: each may be empty without an effect on
        the row around it."""
        rest = [top]
        while rest:
            node = rest.pop()
            if node.label == "VAR":
                self._touch(node)
            if node.label == "SUBLINK":
                self._sublink(node, place)
                continue
            for value in node.fields.values():
                rest.extend(reversed([each for each in nodes_of(value) if each.label != "QUERY"]))

    def _sublink(self, link: Node, place: Place, *, nulls_count: bool = True) -> None:
        query = link.node("subselect")
        assert query is not None
        inside = place.within(self.branch.name())
        frame = _Frame(self.branch, query, self, inside)
        if link.number("subLinkType") == _ANY:
            self._by_test(link, frame, inside, nulls_count=nulls_count)
        elif test := link.node("testexpr"):
            self._walk(test, place)

    def _touch(self, variable: Node) -> None:
        source = self._up(variable)._sources.get(variable.number("varno"))
        if source is not None:
            source.touch(variable.number("varattno"))

    def _up(self, variable: Node) -> _Frame:
        frame: _Frame = self
        for _ in range(variable.number("varlevelsup")):
            assert frame.parent is not None
            frame = frame.parent
        return frame

    def _variable(self, node: Node) -> Term | None:
        if node.label == "PARAM":
            return self._outer.output(node.number("paramid")) if self._outer is not None else None
        source = self._up(node)._sources.get(node.number("varno"))
        term = source.term(node.number("varattno")) if source is not None else None
        if term is None:
            return None
        if term.column is not None and term.parts == (term.column,):
            self.branch.kinds[term.column] = self.branch.catalogue.kind(node.number("vartype"))
        return replace(term, type_oid=node.number("vartype"))


def _column(occurrence: Occurrence, number: int) -> Term | None:
    column = ColumnRef(occurrence.number, number)
    return Term((column,), column=column) if number > 0 else None


def _is_variable(node: Node) -> bool:
    """Whether it speaks of a row; a comparison with a constant joins nothing."""
    return any(each.label in ("VAR", "SUBLINK") for each in every_node(node))


def _entry_of(variable: Node) -> tuple[int, int]:
    return variable.number("varlevelsup"), variable.number("varno")


def _names(entry: Node) -> list[object]:
    reference = entry.node("eref")
    names = reference.fields.get("colnames") if reference is not None else None
    return list(names) if isinstance(names, list) else []


def _arms(operation: Node) -> Iterator[int]:
    """The entries that UNION, INTERSECT and EXCEPT combine."""
    for name in ("larg", "rarg"):
        arm = operation.node(name)
        if arm is not None and arm.label == "SETOPERATIONSTMT":
            yield from _arms(arm)
        elif arm is not None:
            yield arm.number("rtindex")


def _always_one_row(query: Node) -> bool:
    """Whether it has a row even where nothing meets its conditions: count(*) without GROUP BY is 0."""
    grouped = bool(query.nodes("groupClause")) and not query.nodes("groupingSets")
    return not grouped and (query.true("hasAggs") or bool(query.nodes("groupingSets")) or _has(query, "havingQual"))


def _has(query: Node, name: str) -> bool:
    return query.node(name) is not None


def _is_apart(query: Node, entry: Node) -> bool:
    """Whether a row below can only change output rows in which this column is its own: not past a LIMIT, nor across the
    groups of DISTINCT ON and of windows."""
    if _has(query, "limitCount") or _has(query, "limitOffset"):
        return False
    groups = [query.nodes("distinctClause")] if query.true("hasDistinctOn") else []
    groups += [each.nodes("partitionClause") for each in query.nodes("windowClause")]
    own = entry.number("ressortgroupref")
    return all(any(each.number("tleSortGroupRef") == own for each in group) for group in groups)
