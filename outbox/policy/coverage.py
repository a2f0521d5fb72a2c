"""Judges which tables and columns of the view of documents no attachment covers, and names them. Reads no catalogue."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from outbox.policy.derive.derivation import Derivation, Derived, NotDerived

_TABLES: Final = frozenset("rp")  # ordinary and partitioned: what triggers can be on
_UNSEEN: Final = {"f": "foreign", "m": "materialised", "S": "a sequence"}
MOST_NAMED: Final = 5
REMEDY: Final = (
    "Run `outbox attach --from-view`; or, where a table never changes, or your own code writes the refreshes, "
    "`outbox attach --ignore TABLE --reason WHY`."
)


class ReadTable(NamedTuple):
    """A relation that the view reads. `uncovered`: of the columns that are read, those whose changes write no event.
    `attached`: new and deleted rows do. `ignored`: somebody said that it needs no attachment."""

    table: str
    kind: str
    itself: bool
    attached: bool
    ignored: bool
    uncovered: tuple[str, ...]

    @property
    def is_forgotten(self) -> bool:
        return self.kind in _TABLES and not self.ignored and (not self.attached or bool(self.uncovered))

    @property
    def is_unseen(self) -> bool:
        """No trigger sees its changes."""
        return self.kind in _UNSEEN and not self.ignored and not self.itself

    @property
    def shown(self) -> str:
        if self.kind in _UNSEEN:
            return f"{self.table} ({_UNSEEN[self.kind]})"
        return f"{self.table} ({', '.join(self.uncovered)})" if self.attached else self.table


class IgnoredTable(NamedTuple):
    """What is said to need no attachment: a table, or some of its columns."""

    table: str
    columns: tuple[str, ...]
    reason: str
    ignored_by: str
    ignored_at: datetime

    @property
    def shown(self) -> str:
        return f"{self.table} ({', '.join(self.columns)})" if self.columns else self.table


class MissingWay(NamedTuple):
    """A table that is attached, but not for this type, or not in every way that leads from its rows to documents of it.
    `columns`: those whose changes are not seen, where that is all."""

    table: str
    entity_type: str
    columns: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"{self.table} as {self.entity_type}" + (f" ({', '.join(self.columns)})" if self.columns else "")


class OpenAttachment(NamedTuple):
    """`watched` empty: every column."""

    source: int
    entity_type: str
    id_column: str | None
    via: str | None
    watched: Sequence[str]


class Coverage(NamedTuple):
    """What the view reads, with what covers it. `keeps_types`: an entity type is kept by the view, so that its
    documents can be stale already. `has_types`: any is declared."""

    read: Sequence[ReadTable]
    missing: Sequence[MissingWay]
    ignored: Sequence[IgnoredTable]
    keeps_types: bool
    has_types: bool

    @property
    def forgotten(self) -> list[ReadTable | MissingWay]:
        """None where payloads keep every type: then the view is nobody's truth."""
        if self.has_types and not self.keeps_types:
            return []
        tables = [each for each in self.read if each.is_forgotten]
        named = {each.table for each in tables}
        return [*tables, *(each for each in self.missing if each.table not in named)]

    @property
    def unseen(self) -> list[ReadTable]:
        return [each for each in self.read if each.is_unseen]


def missing_ways(needed: Derivation, there: Sequence[OpenAttachment]) -> list[MissingWay]:
    """What the view needs of tables that are attached, for each of its types. A query that somebody wrote by hand is
    taken for all that its type needs; a table without any attachment is reported as a whole."""
    wanted: dict[tuple[int, str], list[Derived | NotDerived]] = {}
    every: list[Derived | NotDerived] = [*needed.attachments, *needed.refused]
    for each in every:
        wanted.setdefault((each.relation.oid, each.entity_type), []).append(each)
    attached = {each.source for each in there}
    of_attached = (each for (oid, _), each in wanted.items() if oid in attached)
    return [missing for each in of_attached if (missing := _missing(each, there))]


def _missing(wanted: Sequence[Derived | NotDerived], there: Sequence[OpenAttachment]) -> MissingWay | None:
    relation, kind = wanted[0].relation, wanted[0].entity_type
    ways = [each for each in there if (each.source, each.entity_type) == (relation.oid, kind)]
    derived = {(each.way.id_column, each.way.via) for each in wanted if isinstance(each, Derived)}
    found = {(each.id_column, each.via) for each in ways}
    by_hand = any(via is not None for _, via in found - derived)
    watched = {name for each in ways for name in each.watched}
    every_column = any(not each.watched for each in ways)
    unseen = () if every_column else tuple(sorted({name for each in wanted for name in each.columns} - watched))
    table = f"{relation.schema}.{relation.quoted}"
    if not ways or (not by_hand and derived - found):
        return MissingWay(table, kind, ())
    return MissingWay(table, kind, unseen) if unseen else None


def told(view: str, names: Sequence[str]) -> str:
    """One sentence for logs, `status`, `doctor` and the console."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{view} reads what no attachment covers: {', '.join(names[:MOST_NAMED])}{more}"
