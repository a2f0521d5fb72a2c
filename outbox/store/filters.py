"""Knows the type of `entity_id`, which some queries name, and what it makes of an id that people ask for."""

from typing import Any, LiteralString
from uuid import UUID

from psycopg import Connection

from outbox.policy.inputs import EventFilter, parameters
from outbox.store.queries import queries


def event_filter(connection: Connection[Any], asked: EventFilter) -> dict[str, Any]:
    """With an entity, whose id must be of the column's type: an adopted table has uuids."""
    named = parameters(asked) | {"id_text": None}
    if asked.entity_id is not None:
        named["id_text"] = _text_of(asked.entity_id, entity_id_type(connection))
        if named["id_text"] is None:
            named |= {"f_ids": [], "f_entity_id": None}  # no row can have it
    return named


def _text_of(id: str, id_type: str) -> str | None:
    """As PostgreSQL itself writes it, for an index over that text; None where the column cannot hold it."""
    try:
        return str({"uuid": UUID, "bigint": int, "integer": int}.get(id_type, str)(id))
    except ValueError:
        return None


def entity_id_type(connection: Connection[Any]) -> str:
    """The column's own type, as PostgreSQL spells it: from its catalogue, never from a person."""
    row = connection.execute(queries("events")["entity_id_type"]).fetchone()
    assert row is not None
    return str(row[0])


def typed(sql: LiteralString, type_name: str) -> LiteralString:
    return sql.replace("{entity_id_type}", type_name)
