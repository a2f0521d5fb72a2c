"""Owns the upgrade to declared entity types: declares those that are there, and ends the time of older programs."""

from typing import Any, Final, NamedTuple

import psycopg

from outbox.errors import Conflict
from outbox.policy.entity_type import BY_VIEW, EntityType, KeptBy, Versions
from outbox.store.entity_types import declare
from outbox.store.queries import queries
from outbox.store.schema.patience import in_transaction
from outbox.store.view_shape import read_shape

MIGRATION: Final = "0016_entity_types"
VIEW_LIMIT: Final = "60s"  # to list the types of the view: one pass over it


# Not among the queries, which are prepared against any view. Documents have these versions.
_HIGHEST_IN_VIEW: Final = (
    "select search_outbox_raise_version(least(max(version), 4611686018427387904)) from {view}"
    " having max(version) is not null"
)


class OlderWorkers(Conflict):
    """Projectors of an older program still run: they know neither declared types nor places. Stop or upgrade them, wait
    until their heartbeats are over (`outbox status`), and run `outbox migrate --finish` again; nothing was changed."""


class Ambiguous(Conflict):
    """Entity types have rows in the view and events with payloads. Say for each what keeps it, with `outbox types set
    TYPE view` or `outbox types set TYPE payload`, and run `outbox migrate --finish` again; nothing was changed."""


class TypesFound(NamedTuple):
    """What the view and the newest events tell of undeclared types. `mixed`: both; a person must say which."""

    clear: dict[str, EntityType]
    mixed: list[str]


def declare_found(conn: psycopg.Connection[Any], view: str) -> TypesFound:
    """Those that are clear; the others are named."""
    asked = queries("upgrade")
    in_view = _rows_of_view(conn, view)
    rows = conn.execute(asked["types_of_events"]).fetchall()
    by_payload = {kind: Versions.PRODUCER if own else Versions.OURS for kind, own in rows}
    declared = {row[0] for row in conn.execute(asked["declared_types"]).fetchall()}
    mixed = (in_view & by_payload.keys()) - declared
    clear = dict.fromkeys(in_view - mixed - declared, BY_VIEW)
    clear |= {
        kind: EntityType(KeptBy.PAYLOAD, whose)
        for kind, whose in by_payload.items()
        if kind not in in_view and kind not in declared
    }
    if clear:
        declare(conn, clear, "outbox migrate")
    return TypesFound(clear, sorted(mixed))


def _rows_of_view(conn: psycopg.Connection[Any], view: str) -> set[str]:
    shape = read_shape(conn, view)
    if not shape.columns:
        return set()
    with conn.transaction():
        conn.execute("select set_config('statement_timeout', %s, true)", (VIEW_LIMIT,))
        found = conn.execute(shape.query(queries("truth")["view_types"]), {"most": 10_000}).fetchall()
    return {row[0] for row in found}


def is_finished(conn: psycopg.Connection[Any]) -> bool:
    """True also where there is nothing to finish yet."""
    row = conn.execute(queries("upgrade")["is_finished"]).fetchone()
    return row is None or bool(row[0])


def finish(conn: psycopg.Connection[Any], view: str) -> list[str]:
    """From here on PostgreSQL refuses the claim of an older program. Answers the types that have to be backfilled:
    those of a view that had versions, or has a routing."""
    asked = queries("upgrade")
    older = [row[0] for row in conn.execute(asked["older_workers"]).fetchall()]
    if older:
        raise OlderWorkers(", ".join(older))
    found = declare_found(conn, view)
    if found.mixed:
        raise Ambiguous(", ".join(found.mixed))
    shape = read_shape(conn, view)
    if "version" in shape.columns:
        conn.execute(shape.query(_HIGHEST_IN_VIEW))
    in_transaction(conn, lambda: conn.execute("alter table search_outbox_leases alter column revision set not null"))
    return sorted(_rows_of_view(conn, view)) if {"version", "routing"} & shape.columns.keys() else []
