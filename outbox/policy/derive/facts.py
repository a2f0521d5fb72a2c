"""Owns what is known of the catalogue while attachments are derived: relations, functions, operators, types by oid."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from outbox.policy.derive.tree import Node, nodes_of, read

_KINDS = {"int2": "int", "int4": "int", "int8": "int", "text": "text", "varchar": "text", "uuid": "uuid"}


class Field(NamedTuple):
    """A column; `quoted` is its name as SQL writes it."""

    number: int
    name: str
    quoted: str
    not_null: bool


@dataclass(frozen=True)
class Relation:
    """A table or view. `sql` is its name as SQL writes it here, `rule` the stored query of a view."""

    oid: int
    sql: str
    name: str
    quoted: str
    schema: str
    kind: str
    columns: Mapping[int, Field]
    rule: str | None = None

    @cached_property
    def query(self) -> Node | None:
        return next(nodes_of(read(self.rule)), None) if self.rule else None


class Function(NamedTuple):
    """`volatility`: i immutable, s stable, v volatile. `builtin`: it came with PostgreSQL."""

    name: str
    shown: str
    strict: bool
    volatility: str
    language: str
    builtin: bool
    returns_set: bool


class Operator(NamedTuple):
    name: str
    function: int
    strict: bool
    equality: bool


class Type(NamedTuple):
    """`base` is the type under all domains, where it came with PostgreSQL."""

    shown: str
    base: str

    @property
    def kind(self) -> str | None:
        """Types of one kind are equal exactly where their texts are; None where equal values may have two texts."""
        return _KINDS.get(self.base)


@dataclass(frozen=True)
class Catalogue:
    view: int
    relations: Mapping[int, Relation] = field(default_factory=dict)
    functions: Mapping[int, Function] = field(default_factory=dict)
    operators: Mapping[int, Operator] = field(default_factory=dict)
    types: Mapping[int, Type] = field(default_factory=dict)
    loose_collations: frozenset[int] = frozenset()
    """Those by which texts that differ may be equal."""
    encoding: str = "utf-8"
    """That of constants in a stored query."""

    def kind(self, type_oid: int) -> str | None:
        found = self.types.get(type_oid)
        return found.kind if found else None

    def queries(self) -> list[Node]:
        return [each.query for each in self.relations.values() if each.query is not None]
