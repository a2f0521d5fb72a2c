"""Owns the attachments that a view needs: for every table occurrence a way to its ids, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outbox.policy.derive import functions
from outbox.policy.derive.branches import Branch, branches
from outbox.policy.derive.facts import Catalogue, Relation
from outbox.policy.derive.occurrences import NotReadable, Occurrence
from outbox.policy.derive.paths import IdPath, NoWay, way
from outbox.policy.derive.terms import Term

WHOLE_ROW = 0
_NOT_TABLES = {
    "f": "a foreign table: no trigger here sees what changes at its source. Copy its rows into a table of your own",
    "m": "a materialised view, which no change reaches until someone refreshes it. Read its tables "
    "instead, or a table that a job of yours fills",
    "S": "a sequence, which fires no triggers. Leave it out",
}


@dataclass(frozen=True)
class Derived:
    """One attachment. `columns`: those that the view reads here; none: the whole row."""

    relation: Relation
    entity_type: str
    way: IdPath
    columns: frozenset[str]


@dataclass(frozen=True)
class NotDerived:
    relation: Relation
    entity_type: str
    reason: str
    columns: frozenset[str]


@dataclass(frozen=True)
class Derivation:
    """`problems`: what keeps the whole view from being derived."""

    attachments: tuple[Derived, ...] = ()
    refused: tuple[NotDerived, ...] = ()
    problems: tuple[str, ...] = ()


def derive(catalogue: Catalogue, ignored: Mapping[int, frozenset[str]] | None = None) -> Derivation:
    """Everything at once: one thing in the way does not hide the others. `ignored`: by the oid of a table, the columns
    that never change; none named means the whole table."""
    found = _Found(ignored or {})
    problems = [*functions.problems(catalogue), *_relation_problems(catalogue, found.ignored)]
    try:
        for branch, outputs in branches(catalogue, ("entity_type", "entity_id")):
            found.add(branch, outputs["entity_type"], outputs["entity_id"])
    except NotReadable as reason:
        problems.append(f"{reason}.")
    except RecursionError:
        problems.append("its query is nested too deeply.")
    problems += found.problems
    return Derivation(
        tuple(
            Derived(relation, entity_type, way, found.columns[key])
            for key, (relation, entity_type, way) in found.ways.items()
        ),
        tuple(found.refused.values()),
        tuple(dict.fromkeys(problems)),
    )


def _relation_problems(catalogue: Catalogue, ignored: Mapping[int, frozenset[str]]) -> list[str]:
    problems = []
    for each in catalogue.relations.values():
        if each.schema in ("pg_catalog", "information_schema"):
            problems.append(f"it reads {each.sql} of PostgreSQL's catalogue, which fires no triggers. Leave that out.")
        elif each.kind in _NOT_TABLES and ignored.get(each.oid) != frozenset():
            problems.append(f"it reads {each.sql}, {_NOT_TABLES[each.kind]}.")
    return problems


@dataclass
class _Found:
    ignored: Mapping[int, frozenset[str]]
    ways: dict[tuple[object, ...], tuple[Relation, str, IdPath]] = field(default_factory=dict)
    columns: dict[tuple[object, ...], frozenset[str]] = field(default_factory=dict)
    refused: dict[tuple[object, ...], NotDerived] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, branch: Branch, entity_type: Term | None, root: Term | None) -> None:
        if entity_type is None or entity_type.constant is None:
            read = ", ".join(sorted({each.relation.sql for each in branch.occurrences}))
            self.problems.append(
                f"the entity_type of the part that reads {read or 'no table'} is not a constant. Write one SELECT per "
                "entity type, each with its type in quotes, and join them by UNION ALL."
            )
            return
        if root is not None and root.is_null:
            return
        for occurrence in branch.occurrences:
            self._occurrence(branch, occurrence, entity_type.constant, root)

    def _occurrence(self, branch: Branch, occurrence: Occurrence, entity_type: str, root: Term | None) -> None:
        relation = occurrence.relation
        columns = _read_columns(occurrence)
        ignored = self.ignored.get(relation.oid)
        if ignored is not None and (not ignored or columns <= ignored):
            return
        if any(number < 0 for number in occurrence.reads):
            self.problems.append(
                f"it reads a system column of {relation.sql} (ctid, xmin and the like). Leave that out."
            )
        try:
            if root is None:
                raise NoWay("entity_id is an expression that cannot be written into a query of its own")
            found = way(branch, occurrence, root)
        except NoWay as reason:
            self._refuse(NotDerived(relation, entity_type, str(reason), columns))
            return
        key = (relation.oid, entity_type, found.id_column, found.via)
        self.ways.setdefault(key, (relation, entity_type, found))
        self.columns[key] = self.columns.get(key, frozenset()) | columns

    def _refuse(self, refused: NotDerived) -> None:
        key = (refused.relation.oid, refused.entity_type, refused.reason)
        before = self.refused.get(key)
        columns = refused.columns | (before.columns if before is not None else frozenset())
        self.refused[key] = replace(refused, columns=columns)


def _read_columns(occurrence: Occurrence) -> frozenset[str]:
    columns = occurrence.relation.columns
    if WHOLE_ROW in occurrence.reads:
        return frozenset(each.name for each in columns.values())
    return frozenset(columns[number].name for number in occurrence.reads if number > 0)
