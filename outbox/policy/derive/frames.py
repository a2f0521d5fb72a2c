"""Owns reading one SELECT of a view with its subqueries: which tables it joins, on what conditions, what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from outbox.policy.derive.occurrences import Condition, NotReadable, Occurrence, Place
from outbox.policy.derive.shape import always_one_row, arms, is_apart, is_variable
from outbox.policy.derive.terms import ColumnRef, Term, Terms
from outbox.policy.derive.tree import Node, nodes_of

if TYPE_CHECKING:
    from outbox.policy.derive.branches import Branch

_INNER, _LEFT, _FULL, _RIGHT = range(4)
_RELATION, _SUBQUERY, _JOIN, _FUNCTION, _TABLE_FUNCTION, _VALUES, _CTE, _, _RESULT, _GROUP = range(10)
_WITHOUT_ROWS_OF_TABLES = (_FUNCTION, _TABLE_FUNCTION, _VALUES, _RESULT)
_EXISTS, _ANY, _SCALAR = 0, 2, 4
# Their expressions are read by the join tree, or where they are referred to.
_APART = {"rtable", "cteList", "setOperations", "jointree", "rteperminfos"}


class _Source(NamedTuple):
    """One entry of a range table. `touch` notes that a column is read."""

    term: Callable[[int], Term | None]
    touch: Callable[[int], None] = lambda number: None


class Frame:
    def __init__(self, branch: Branch, query: Node, parent: Frame | None, place: Place) -> None:
        self.branch, self.query, self.parent = branch, query, parent
        self.number = branch.name()
        self.place = place._replace(frames=place.frames | {self.number})
        if always_one_row(query):
            self.place = self.place.within(branch.name())
        self._sources: dict[int, _Source] = {}
        self._outer: Frame | None = None
        self._terms = Terms(branch.catalogue, self._variable)
        self._arm: Frame | None = None
        self._read()

    def output(self, number: int) -> Term | None:
        entry = next(each for each in self.query.nodes("targetList") if each.number("resno") == number)
        term = self._arm.output(number) if self._arm is not None else self._terms.of(entry.node("expr"))
        if term is not None and not is_apart(self.query, entry):
            return replace(term, barriers=term.barriers | {self.number})
        return term

    def _read(self) -> None:
        operation = self.query.node("setOperations")
        if operation is not None:
            indexes = list(arms(operation))
            chosen = self._entry(indexes[self.branch.pick(len(indexes))]).node("subquery")
            assert chosen is not None
            self._arm = Frame(self.branch, chosen, self, self.place)
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
        if kind in _WITHOUT_ROWS_OF_TABLES:
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

    def _subquery(self, query: Node | None, parent: Frame | None, place: Place) -> _Source:
        assert query is not None
        frame = Frame(self.branch, query, parent, place)
        return _Source(lambda number: frame.output(number) if number > 0 else None)

    def _common_table(self, entry: Node, place: Place) -> _Source:
        frame: Frame | None = self
        for _ in range(entry.number("ctelevelsup")):
            frame = frame.parent if frame is not None else None
        assert frame is not None
        name = entry.text("ctename")
        table = next(each for each in frame.query.nodes("cteList") if each.text("ctename") == name)
        if table.true("cterecursive"):
            raise NotReadable(f"its query {name} is recursive (WITH RECURSIVE)")
        return self._subquery(table.node("ctequery"), frame, place)

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
        elif sort == "or":
            self._alternative(node, place)
        elif node.label == "SUBLINK" and node.number("subLinkType") in (_EXISTS, _ANY):
            self._by_test(node, self._inner(node, place), place)
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

    def _inner(self, link: Node, place: Place) -> Frame:
        query = link.node("subselect")
        assert query is not None
        return Frame(self.branch, query, self, place)

    def _by_test(self, link: Node, frame: Frame, place: Place, *, nulls_count: bool = False) -> None:
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

    def _side(self, node: Node, frame: Frame) -> Term | None:
        self._outer = frame
        try:
            return self._terms.of(node)
        finally:
            self._outer = None

    def _never_null(self, term: Term | None, place: Place) -> bool:
        if term is None or term.column is None:
            return False
        occurrence = self.branch.occurrences[term.column.occurrence]
        return occurrence.relation.columns[term.column.number].not_null and occurrence.regions <= place.regions

    def _compare(self, node: Node, place: Place) -> None:
        if not all(is_variable(side) for side in node.nodes("args")):
            self._walk(node, place)
            return
        sides: list[Term | None] = []
        for side in node.nodes("args"):
            if side.label == "SUBLINK" and side.number("subLinkType") == _SCALAR:
                sides.append(self._inner(side, place).output(1))
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
        inside = place.within(self.branch.name())
        frame = self._inner(link, inside)
        if link.number("subLinkType") == _ANY:
            self._by_test(link, frame, inside, nulls_count=nulls_count)
        elif test := link.node("testexpr"):
            self._walk(test, place)

    def _touch(self, variable: Node) -> None:
        source = self._up(variable)._sources.get(variable.number("varno"))
        if source is not None:
            source.touch(variable.number("varattno"))

    def _up(self, variable: Node) -> Frame:
        frame: Frame = self
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
        return replace(term, type_oid=node.number("vartype"))


def _column(occurrence: Occurrence, number: int) -> Term | None:
    column = ColumnRef(occurrence.number, number)
    return Term((column,), column=column) if number > 0 else None
