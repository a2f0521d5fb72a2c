"""Owns a random view `search_documents` over a shape: joins, correlated subqueries, aggregates, `in`, `exists`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tests.schemas.shape import Reference, Shape, Table

HOPS: Final = 3  # from a document's own row
UP: Final = ("left join", "inner join", "subquery", "label")
DOWN: Final = ("documents", "count", "sum", "exists", "lateral", "grouped")


@dataclass
class Scope:
    """One FROM list, and what a document takes from it."""

    table: Table
    alias: str
    joins: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)  # 'name', expression

    @property
    def source(self) -> str:
        return " ".join([f"{self.table.source} {self.alias}", *self.joins])

    @property
    def document(self) -> str:
        return f"jsonb_build_object({', '.join(self.pairs)})"

    def order(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{self.alias}.{column}::text" for column in columns)


class View:
    """`roots`: the tables whose rows are documents, each an entity type of the table's name."""

    def __init__(self, shape: Shape, dice: random.Random, roots: Sequence[Table]) -> None:
        self._shape, self._dice = shape, dice
        self._numbers = count(1)
        self.roots = roots

    @property
    def statement(self) -> str:
        same = len({root.key for root in self.roots}) == 1
        cast = "" if same and self._dice.random() < 0.5 else "::text"
        return "create view search_documents as\n" + "\nunion all\n".join(self._of(root, cast) for root in self.roots)

    def _of(self, root: Table, cast: str) -> str:
        scope = self._scope(root)
        self._fill(scope, [], scope)
        where = f" where {scope.alias}.score >= 20" if self._dice.random() < 0.3 else ""
        return (
            f"select '{root.name}'::text as entity_type, {scope.alias}.id{cast} as entity_id,"
            f" {scope.document} as document from {scope.source}{where}"
        )

    def _scope(self, table: Table) -> Scope:
        return Scope(table, f"a{next(self._numbers)}")

    def _fill(self, scope: Scope, way: list[Reference], to: Scope, table: Table | None = None, alias: str = "") -> None:
        """What `to` takes from one row, and from those that it leads to; a link is used once on each way."""
        table, alias = table or scope.table, alias or scope.alias
        for column in ("label", "score"):
            to.pairs += [f"'{alias}_{column}'", f"{alias}.{column}"]
        for link in self._shape.links:
            if link in way or len(way) == HOPS:
                continue
            if link.holder == table:
                self._up(link, alias, [*way, link], to)
            if link.target == table:
                to.pairs += [f"'{alias}_{link.holder.name}'", self._down(link, alias, [*way, link], to)]

    def _up(self, link: Reference, alias: str, way: list[Reference], to: Scope) -> None:
        style = self._dice.choice(UP)
        there = self._scope(link.target)
        condition = f"{there.alias}.id = {alias}.{link.column}"
        if style in ("left join", "inner join"):
            to.joins.append(f"{style} {link.target.source} {there.alias} on {condition}")
            self._fill(to, way, to, link.target, there.alias)
            return
        if style == "label":
            value = f"select {there.alias}.label from {there.source} where {condition}"
        else:
            self._fill(there, way, there)
            value = f"select {there.document} from {there.source} where {condition}"
        to.pairs += [f"'{alias}_{link.column}'", f"({value})"]

    def _down(self, link: Reference, alias: str, way: list[Reference], to: Scope) -> str:
        style = self._dice.choice(DOWN)
        there = self._scope(link.holder)
        condition = f"{there.alias}.{link.column} = {alias}.id"
        if style in ("documents", "lateral"):
            self._fill(there, way, there)
            all_of_them = f"jsonb_agg({there.document} order by {there.order(self._shape.key(link.holder))})"
            if style == "documents":
                return f"(select {all_of_them} from {there.source} where {condition})"
            beside = f"l{next(self._numbers)}"
            inner = f"select {all_of_them} as found from {there.source} where {condition}"
            to.joins.append(f"left join lateral ({inner}) {beside} on true")
            return f"{beside}.found"
        if style == "grouped":
            beside = f"g{next(self._numbers)}"
            inner = f"select {there.alias}.{link.column} as k, count(*) as n from {there.source} group by 1"
            to.joins.append(f"left join ({inner}) {beside} on {beside}.k = {alias}.id")
            return f"coalesce({beside}.n, 0)"
        if style == "exists":
            return self._exists(link, there, condition, alias)
        what = "count(*)" if style == "count" else f"sum({there.alias}.score)"
        return f"(select {what} from {there.source} where {condition})"

    def _exists(self, link: Reference, there: Scope, condition: str, alias: str) -> str:
        """Beyond a join table by `in`, else by `exists`."""
        others = [other for other in self._shape.of(link.holder) if other != link]
        if not link.holder.joins or not others:
            return f"exists (select from {there.source} where {condition} and {there.alias}.score > 50)"
        (other,) = others
        beyond = self._scope(other.target)
        inner = f"select {there.alias}.{other.column} from {there.source} where {condition}"
        labels = f"jsonb_agg({beyond.alias}.label order by {beyond.alias}.label, {beyond.alias}.id::text)"
        return f"(select {labels} from {beyond.source} where {beyond.alias}.id in ({inner}))"


def view(shape: Shape, dice: random.Random) -> View:
    """Of one entity type, or of two over the same tables."""
    return View(shape, dice, dice.sample(shape.roots, k=min(len(shape.roots), dice.choice((1, 1, 2)))))
