"""Owns the parts of a branch: table occurrences and the conditions between them, each with what is around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from outbox.policy.derive.facts import Relation
from outbox.policy.derive.terms import ColumnRef, Term


class NotReadable(Exception):
    """The view has something that nothing can be derived from."""


@dataclass(eq=False, slots=True)
class Occurrence:
    """A table as often as it is joined."""

    number: int
    relation: Relation
    regions: frozenset[int]
    frames: frozenset[int]
    reads: set[int] = field(default_factory=set)
    """Numbers of columns; 0 is the whole row."""


@dataclass(frozen=True, slots=True)
class Condition:
    """It holds for all rows that matter, once its regions are not empty. Null never meets it. `same_text`: two
    columns with one text."""

    term: Term
    regions: frozenset[int]
    occurrences: frozenset[int]
    equality: bool = False
    same_text: tuple[ColumnRef, ColumnRef] | None = None


class Place(NamedTuple):
    regions: frozenset[int] = frozenset()
    frames: frozenset[int] = frozenset()

    def within(self, *regions: int) -> Place:
        return self._replace(regions=self.regions | set(regions))
