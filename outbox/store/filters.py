"""Turns a filter into conditions with bind parameters, for queries that hold the mark `/* and filter */`; and knows the
type of `entity_id`, which some queries name.

The mark is a comment, so every query can be prepared as it stands in its file; what an index needs (the state of the
rows) stands there too, as literals. The table is called `e` in event queries and `a` in audit queries.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, LiteralString, NamedTuple
from uuid import UUID

from psycopg import Connection

from outbox.policy.inputs import NONE, AuditFilter, EventFilter
from outbox.policy.outcome import FAILURE_TYPE_OF
from outbox.store.queries import queries

MARK: Final = "/* and filter */"
TimeColumn = Literal["failed_at", "processed_at", "created_at"]  # the time that `since` and `until` compare
_UNKNOWN: Final = "unknown"
_PARAMETER: Final = re.compile(r"%\((\w+)\)s")


class Where(NamedTuple):
    """`sql` is empty or begins with `and`; values travel as parameters, named `f_...`."""

    sql: LiteralString
    parameters: dict[str, Any]

    def into(self, query: LiteralString) -> LiteralString:
        assert MARK in query, "a filtered query must hold the mark"
        return query.replace(MARK, self.sql)


def event_where(asked: EventFilter, time: TimeColumn, id_type: str) -> Where:
    """`id_type` is the table's own type of entity_id: an adopted table has uuid there."""
    since, until = _TIMES[time]
    return _where(
        {
            "e.id = any (%(f_ids)s::uuid[])": list(asked.ids) or None,
            "e.entity_type = %(f_entity_type)s": asked.entity_type,
            _entity_id(asked.entity_id or "", id_type): asked.entity_id,
            **_failure(asked),
            # The trace id is the second part of `00-TRACE-SPAN-01`.
            "substr(e.traceparent, 4, 32) = %(f_trace_id)s": asked.trace_id,
            since: asked.since,
            until: asked.until,
        }
    )


def audit_where(asked: AuditFilter) -> Where:
    given: dict[LiteralString, Any] = {
        "a.entity_type = %(f_entity_type)s": asked.entity_type,
        "a.entity_id = %(f_entity_id)s": asked.entity_id,
        "a.trace_id = %(f_trace_id)s": asked.trace_id,
        "a.action = %(f_action)s": asked.action,
        "a.actor = %(f_actor)s": asked.actor,
        "a.batch_id = %(f_batch_id)s": asked.batch_id,
        "a.at >= %(f_since)s": asked.since,
        "a.at < %(f_until)s": asked.until,
    }
    return _where(given)


def _where(given: Mapping[LiteralString, Any]) -> Where:
    """Conditions with the value of their parameter; what nobody asked for is left out."""
    kept = {sql: value for sql, value in given.items() if value is not None}
    together: LiteralString = " and ".join(kept)
    named = {found[1]: value for sql, value in kept.items() if (found := _PARAMETER.search(sql))}
    return Where("and " + together if kept else "", named)


_TIMES: Final[dict[TimeColumn, tuple[LiteralString, LiteralString]]] = {
    "failed_at": ("e.failed_at >= %(f_since)s", "e.failed_at < %(f_until)s"),
    "processed_at": ("e.processed_at >= %(f_since)s", "e.processed_at < %(f_until)s"),
    "created_at": ("e.created_at >= %(f_since)s", "e.created_at < %(f_until)s"),
}


def _failure(asked: EventFilter) -> dict[LiteralString, Any]:
    """What went wrong. `none` asks for rows that failed before there was such a column."""
    reason: LiteralString = "e.error_reason = %(f_error_reason)s"
    mark: LiteralString = "e.error_fingerprint = %(f_fingerprint)s"
    return {
        "e.error_reason is null" if asked.error_reason == NONE else reason: asked.error_reason,
        "e.error_code = %(f_error_code)s": asked.error_code,
        "e.dead_reason = %(f_dead_reason)s": asked.dead_reason,
        **_failure_type(asked.failure_type),
        "e.error_fingerprint is null" if asked.fingerprint == NONE else mark: asked.fingerprint,
    }


def _failure_type(asked: str | None) -> dict[LiteralString, Any]:
    """A type is a list of reasons; `unknown` is also every reason that we do not know."""
    if asked is None:
        return {}
    if asked != _UNKNOWN:
        reasons = [str(reason) for reason, kind in FAILURE_TYPE_OF.items() if kind == asked]
        return {"e.error_reason = any (%(f_reasons)s::text[])": reasons}
    others = [str(reason) for reason, kind in FAILURE_TYPE_OF.items() if kind != _UNKNOWN]
    return {"(e.error_reason is null or e.error_reason <> all (%(f_reasons)s::text[]))": others}


def _entity_id(value: str, id_type: str) -> LiteralString:
    if id_type != "uuid":
        return "e.entity_id = %(f_entity_id)s"
    try:
        UUID(value)
    except ValueError:
        return "%(f_entity_id)s::text is null"  # no row can have it
    return "e.entity_id = %(f_entity_id)s::uuid"


def text_of_id(value: str, id_type: str) -> str:
    """The id as PostgreSQL itself writes it, for an index over that text; the comparison of values stands beside it."""
    write = {"uuid": UUID, "bigint": int, "integer": int}.get(id_type, str)
    try:
        return str(write(value))
    except ValueError:
        return value


def entity_id_type(connection: Connection[Any]) -> str:
    """The column's own type, as PostgreSQL spells it: from its catalogue, never from a person."""
    row = connection.execute(queries("events")["entity_id_type"]).fetchone()
    assert row is not None
    return str(row[0])


def typed(sql: LiteralString, type_name: str) -> LiteralString:
    return sql.replace("{entity_id_type}", type_name)
