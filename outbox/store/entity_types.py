"""Owns the declarations of entity types: reads them, makes the first ones, changes them. Brings no documents over."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection

from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.entity_type import EntityType, KeptBy, Versions
from outbox.store import audit
from outbox.store.pool import TopicStore
from outbox.store.queries import queries


class DeclaredType(NamedTuple):
    entity_type: str
    kept_by: KeptBy
    versions: Versions
    moving: bool
    declared_by: str
    declared_at: datetime

    @property
    def about(self) -> EntityType:
        return EntityType(self.kept_by, self.versions, self.moving)


class PostgresEntityTypes(TopicStore, topic="entity_types"):
    def read(self, types: Sequence[str] | None = None) -> tuple[int, Mapping[str, EntityType]]:
        """The revision, and what is declared: of these types, or of all."""
        rows = self._all("declared") if types is None else self._all("declared_of", types=list(types))
        return rows[0][0], {declared.entity_type: declared.about for declared in _declared(rows)}

    def list(self) -> Sequence[DeclaredType]:
        return _declared(self._all("declared"))

    def declare(self, types: Mapping[str, EntityType], by: str) -> None:
        """Those that are new. What holds is read by a statement of its own, which sees who was faster."""
        with self._database.connection() as connection:
            declare(connection, types, by)

    def older_batches(self) -> int:
        """In flight, or late by less than any request takes."""
        return int(self._value("older_batches") or 0)

    def take_back(self, types: Sequence[str], by: str) -> None:
        with self._database.transaction() as connection:
            if connection.execute(self._sql["take_back"], {"types": list(types), "by": by}).rowcount:
                connection.execute(self._sql["raise_revision"])

    def change(self, entity_type: str, about: EntityType, actor: Actor, reason: str, was: EntityType | None) -> None:
        """With its audit row; every batch in flight is done again."""
        detail = {"was": None if was is None else _columns(was), "now": _columns(about)}
        entry = Entry(Action.ENTITY_TYPE_DECLARED, actor, reason, entity_type=entity_type, detail=detail)
        with self._database.transaction() as connection:
            named = {"entity_type": entity_type, **_columns(about), "by": actor.name}
            connection.execute(self._sql["change"], named)
            connection.execute(self._sql["raise_revision"])
            audit.write(connection, [entry])


def declared(connection: Connection[Any], entity_type: str) -> EntityType | None:
    rows = connection.execute(queries("entity_types")["declared"]).fetchall()
    return next((each.about for each in _declared(rows) if each.entity_type == entity_type), None)


def declare(connection: Connection[Any], types: Mapping[str, EntityType], by: str) -> None:
    named = {
        "types": list(types),
        "kept_by": [about.kept_by.value for about in types.values()],
        "versions": [about.versions.value for about in types.values()],
        "by": [by] * len(types),
    }
    connection.execute(queries("entity_types")["declare"], named)


def kept_by_view(connection: Connection[Any], types: Sequence[str]) -> set[str]:
    """Of these types; locked until the transaction ends."""
    rows = connection.execute(queries("entity_types")["kept_by_view"], {"types": list(types)}).fetchall()
    return {row[0] for row in rows}


def _declared(rows: Sequence[tuple[Any, ...]]) -> list[DeclaredType]:
    found = [row[1:] for row in rows if row[1] is not None]
    return [DeclaredType(kind, KeptBy(by), Versions(whose), *rest) for kind, by, whose, *rest in found]


def _columns(about: EntityType) -> dict[str, Any]:
    return {"kept_by": about.kept_by.value, "versions": about.versions.value, "moving": about.moving}
