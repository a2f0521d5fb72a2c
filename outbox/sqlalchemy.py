"""Triggers by a migration of Alembic: `op.execute(attach_sql(op.get_bind(), "articles", entity_type="article", ...))`.
The migration's own connection is asked about the table; nothing is changed, and none of ours is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, TextClause, text

from outbox.errors import WrongConnection
from outbox.store.attach import attach


def attach_sql(
    connection: Connection,
    table: str,
    *,
    entity_type: str,
    id: str | None = None,
    via: str | None = None,
    columns: Sequence[str] = (),
    per_row: bool = False,
    view: str = "search_documents",
) -> TextClause:
    """As `outbox attach --sql` prints it, with the same checks."""
    how: dict[str, Any] = {"entity_type": entity_type, "id_column": id, "via": via, "columns": tuple(columns)}
    how |= {"per_row": per_row, "view": view, "run": False}
    return _text(attach.attach(_driver(connection), table, **how).sql)


def detach_sql(
    connection: Connection, table: str, *, entity_type: str, id: str | None = None, via: str | None = None
) -> TextClause:
    """Of this way alone; of each way of the type without `id` and `via`."""
    return _text(attach.detach_sql(_driver(connection), table, entity_type=entity_type, id_column=id, via=via))


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    found = connection.connection.driver_connection
    if not isinstance(found, psycopg.Connection):
        raise WrongConnection(
            f"it is of {connection.engine.url.drivername}; migrate with postgresql+psycopg and a synchronous engine,"
            " or put the text of `outbox attach ... --sql` into the migration"
        )
    return found


def _text(script: str) -> TextClause:
    """Without parameters, whatever has a colon in it."""
    return text(script.replace(":", "\\:"))
