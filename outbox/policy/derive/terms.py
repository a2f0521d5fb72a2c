"""Owns expressions of a view as SQL over columns of table occurrences: what a query of ours can have, and what is known
of it. Other expressions have no term."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from outbox.policy.derive.facts import Catalogue
from outbox.policy.derive.tree import Node

EXPLICIT_CAST, IMPLICIT_CAST = 1, 2
_TEXT = "text"


class ColumnRef(NamedTuple):
    occurrence: int
    number: int


@dataclass(frozen=True, slots=True)
class Term:
    """`parts` is its SQL with columns in between. `column`: the column whose text is always that of the term.
    `barriers`: subqueries in which a row can change the term of other rows (LIMIT, a window)."""

    parts: tuple[str | ColumnRef, ...]
    type_oid: int = 0
    column: ColumnRef | None = None
    constant: str | None = None
    is_null: bool = False
    strict: bool = True
    barriers: frozenset[int] = frozenset()

    @property
    def columns(self) -> list[ColumnRef]:
        return [part for part in self.parts if isinstance(part, ColumnRef)]

    @property
    def occurrences(self) -> frozenset[int]:
        return frozenset(column.occurrence for column in self.columns)


def joined(pieces: tuple[str | Term, ...], *, type_oid: int = 0, strict: bool = True) -> Term:
    parts: list[str | ColumnRef] = []
    terms = [piece for piece in pieces if isinstance(piece, Term)]
    for piece in pieces:
        parts.extend(piece.parts if isinstance(piece, Term) else [piece])
    return Term(
        tuple(parts),
        type_oid,
        strict=strict and all(term.strict for term in terms),
        barriers=frozenset().union(*(term.barriers for term in terms)),
    )


class Terms:
    """Makes terms of nodes. `variable` resolves a VAR or PARAM."""

    def __init__(self, catalogue: Catalogue, variable: Callable[[Node], Term | None]) -> None:
        self._catalogue = catalogue
        self._by_label: dict[str, Callable[[Node], Term | None]] = {
            "VAR": variable,
            "PARAM": variable,
            "CONST": self._constant,
            "RELABELTYPE": lambda node: self._cast(node, "resulttype", "relabelformat"),
            "COERCEVIAIO": lambda node: self._cast(node, "resulttype", "coerceformat"),
            "COERCETODOMAIN": lambda node: self._cast(node, "resulttype", "coercionformat"),
            "FUNCEXPR": self._call,
            "OPEXPR": self._operation,
        }

    def of(self, node: Node | None) -> Term | None:
        make = self._by_label.get(node.label) if node is not None else None
        return make(node) if make is not None and node is not None else None

    def _constant(self, node: Node) -> Term | None:
        type_oid = node.number("consttype")
        if node.true("constisnull"):
            return Term((f"null::{self._type_name(type_oid)}",), type_oid, is_null=True)
        value = node.fields.get("constvalue")
        if self._catalogue.kind(type_oid) != _TEXT or not isinstance(value, list):
            return None
        try:  # the first four bytes are its length
            text = bytes(int(str(each)) % 256 for each in value[5:]).decode(self._catalogue.encoding)
        except UnicodeDecodeError:
            return None
        return Term((f"{_literal(text)}::text",), type_oid, constant=text)

    def _type_name(self, type_oid: int) -> str:
        found = self._catalogue.types.get(type_oid)
        return found.shown if found else "text"

    def _cast(self, node: Node, type_field: str, format_field: str) -> Term | None:
        inner = self.of(node.node("arg"))
        return None if inner is None else self._cast_to(inner, node.number(type_field), node.number(format_field))

    def _cast_to(self, inner: Term, type_oid: int, how: int) -> Term:
        """The text stays the same from one kind to itself, and to text."""
        before, after = self._catalogue.kind(inner.type_oid), self._catalogue.kind(type_oid)
        kept = before is not None and after in (before, _TEXT)
        if kept and before == after and how == IMPLICIT_CAST:
            return replace(inner, type_oid=type_oid)
        made = joined((inner, f"::{self._type_name(type_oid)}"), type_oid=type_oid)
        return replace(made, column=inner.column if kept else None, constant=inner.constant if kept else None)

    def _call(self, node: Node) -> Term | None:
        function = self._catalogue.functions.get(node.number("funcid"))
        given = node.nodes("args")
        arguments = [each for each in map(self.of, given) if each is not None]
        if function is None or len(arguments) < len(given) or node.true("funcvariadic"):
            return None
        type_oid, how = node.number("funcresulttype"), node.number("funcformat")
        if how in (EXPLICIT_CAST, IMPLICIT_CAST) and len(arguments) == 1:
            return replace(self._cast_to(arguments[0], type_oid, how), strict=arguments[0].strict and function.strict)
        separated = [piece for each in arguments for piece in (", ", each)][1:]
        return joined((f"{function.name}(", *separated, ")"), type_oid=type_oid, strict=function.strict)

    def _operation(self, node: Node) -> Term | None:
        if (made := self.comparison(node)) is None:
            return None
        return joined(("(", made, ")"), type_oid=node.number("opresulttype"), strict=made.strict)

    def comparison(self, node: Node, sides: list[Term | None] | None = None) -> Term | None:
        """An operator between two terms, without brackets."""
        operator = self._catalogue.operators.get(node.number("opno"))
        given = sides if sides is not None else [self.of(each) for each in node.nodes("args")]
        if operator is None or len(given) != 2 or given[0] is None or given[1] is None:
            return None
        left, right = given[0], given[1]
        if node.label == "SCALARARRAYOPEXPR":
            return joined((left, f" {operator.name} any (", right, ")"), strict=operator.strict)
        return joined((left, f" {operator.name} ", right), strict=operator.strict)


def _literal(text: str) -> str:
    """As SQL reads it whatever standard_conforming_strings says."""
    quoted = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{quoted}'" if "\\" in text else f"'{quoted}'"
