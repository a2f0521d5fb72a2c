"""Owns judging the query of `--via`: one SELECT over the row `changed` that returns ids. It runs it never.

The query is made a view in a transaction that is rolled back, so PostgreSQL itself parses and analyses it, in the place
where a fan-out will have it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from outbox.store import plans
from outbox.store.attach.tables import Column, SourceTable, read_columns
from outbox.store.queries import queries

LARGE_ROWS = 10_000
"""Reading a smaller table as a whole takes about a millisecond."""


_SYNTAX = b"42601"
_STAND_IN = re.compile(r"Subquery Scan on (changed|one)$|Result$|Hash$|Disabled: ")
# A row of nulls that the planner does not see through: it plans as for one row of unknown values.
_ONE_ROW = "(select (one.r).* from (select null::{table} as r offset 0) as one offset 0) as changed"


@dataclass(frozen=True, slots=True)
class Via:
    """What was found: `id` is the column that the query returns, `used` the columns of `changed` that it reads, all of
    them where it reads the whole row."""

    problems: tuple[str, ...]
    id: Column | None = None
    used: tuple[str, ...] = ()
    whole_row: bool = False
    notes: tuple[str, ...] = ()


def joined(changed: sql.Composable, via: str, *, checked: bool = True) -> sql.Composed:
    """The query beside each changed row. Its last line may be a comment. Once it is checked it has one column."""
    alias = sql.SQL("via (id)" if checked else "via")
    return sql.SQL("{} cross join lateral (\n{}\n) as {}").format(changed, sql.SQL(via), alias)


def check(conn: psycopg.Connection[Any], source: SourceTable, via: str) -> Via:
    if not via.strip():
        return Via(("--via is empty. Give a query that returns ids, such as: select changed.article_id.",))
    if problem := _not_one_statement(conn, via):
        return Via((problem,))
    try:
        with conn.transaction(force_rollback=True):
            return _check(conn, source, via)
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError) as error:
        said = (error.diag.message_primary or type(error).__name__).rstrip(".")
        return Via((f"--via: {said}. It is one SELECT over the row `changed`, a row of {source.shown}.",))


def _not_one_statement(conn: psycopg.Connection[Any], via: str) -> str:
    """Parsed alone, so that no bracket or comment of it can end what it is put into. That it lacks `changed` there is
    found later than a mistake of syntax."""
    with conn.transaction(force_rollback=True):
        result = conn.pgconn.prepare(b"", via.encode(conn.info.encoding))
        state, said = result.error_field(ord("C")), result.error_field(ord("M"))
    if state != _SYNTAX:
        return ""
    return f"--via is not one query: {(said or b'').decode(errors='replace')}. Give one SELECT without a semicolon."


def _check(conn: psycopg.Connection[Any], source: SourceTable, via: str) -> Via:
    both = sql.SQL("(select * from {0} union all select * from {0}) as changed").format(source.name)
    oid = _make_view(conn, source, both, via)
    columns = list(read_columns(conn, oid).values())
    if len(columns) != 1:
        names = ", ".join(column.name for column in columns) or "none"
        return Via((f"--via returns {len(columns)} columns ({names}). It must return one, the id.",))
    problems = [*_volatile(conn, oid), *_locking(conn, source)]
    # What the projector's role must be allowed to read. Rights of a role that nobody uses do no harm.
    lacking = conn.execute(queries("producers")["unreadable"], {"oid": oid, "source": source.oid}).fetchall()
    unreadable = (
        f"a projector that logs in as {role} may not read {table}: grant select on {table} to {role}"
        for table, role in lacking
    )
    used, whole_row = _used(conn, source, via)
    problems += [
        f"--via reads the virtual generated column {name} of {source.shown}, which triggers do not see. "
        "Use the columns that it is computed from."
        for name in used
        if source.columns[name].is_virtual
    ]
    if not columns[0].names_an_entity:
        problems.append(
            f"--via returns {columns[0].shown}, whose text is not the same in every session. "
            "Make it text in the query, for example with to_char."
        )
    return Via(tuple(problems), columns[0], used, whole_row, tuple(unreadable))


def _make_view(conn: psycopg.Connection[Any], source: SourceTable, changed: sql.Composable, via: str) -> int:
    name = _checked(source)
    query = joined(changed, via, checked=False)
    conn.execute(sql.SQL("create view {} as select via.* from {}").format(name, query))
    row = conn.execute("select %s::regclass::oid::bigint", [name.as_string(conn)]).fetchone()
    assert row is not None
    return int(row[0])


def _volatile(conn: psycopg.Connection[Any], oid: int) -> Iterator[str]:
    for (name,) in conn.execute(queries("producers")["volatile_functions"], {"oid": oid}).fetchall():
        yield (
            f"--via calls {name}, which is volatile: it may answer otherwise each time. Leave it out, or declare it "
            "STABLE if it only reads."
        )
    if conn.execute(queries("producers")["samples"], {"oid": oid}).fetchone() == (True,):
        yield "--via takes a random sample (TABLESAMPLE). Leave that out."


def _locking(conn: psycopg.Connection[Any], source: SourceTable) -> Iterator[str]:
    plan = plans.explained(conn, sql.SQL("select * from {}").format(_checked(source)))
    if any(node["Node Type"] == "LockRows" for node in plans.nodes(plan)):
        yield "--via locks rows (FOR UPDATE or FOR SHARE). Leave that out: writers would wait for each other."


def _checked(source: SourceTable) -> sql.Identifier:
    return sql.Identifier(source.outbox_schema, "search_outbox_via_check")


def _used(conn: psycopg.Connection[Any], source: SourceTable, via: str) -> tuple[tuple[str, ...], bool]:
    """The columns of `changed` that the query names, as PostgreSQL writes it out: every one with its prefix."""
    conn.execute(sql.SQL("drop view {}").format(_checked(source)))
    oid = _make_view(conn, source, sql.SQL("{} as changed").format(source.name), via)
    row = conn.execute("select pg_get_viewdef(%s::oid)", [oid]).fetchone()
    definition = row[0] if row else ""
    quoted = dict(
        conn.execute("select n, quote_ident(n) from unnest(%s::text[]) as n", [list(source.columns)]).fetchall()
    )
    whole_row = re.search(r"\bchanged\.\*", definition) is not None
    named = (name for name in source.columns if re.search(rf"\bchanged\.{re.escape(quoted[name])}(?!\w)", definition))
    return tuple(source.columns if whole_row else named), whole_row


def scans(conn: psycopg.Connection[Any], table: sql.Composable, via: str, path: Sequence[str] = ()) -> str:
    """Large tables that the query reads as a whole for a single changed row, with PostgreSQL's own plan; or nothing.
    Raises psycopg.ProgrammingError where the query does not plan any more."""
    query = sql.SQL("select via.id from {}").format(joined(sql.SQL(_ONE_ROW).format(table=table), via))
    with conn.transaction(force_rollback=True):
        if path:
            found_in = sql.SQL(", ").join(map(sql.Identifier, path)).as_string(conn)
            conn.execute("select set_config('search_path', %s, true)", [found_in])
        read = [each for each in plans.whole_reads(conn, query) if each["rows"] > LARGE_ROWS]
        large = dict.fromkeys(f"{each['table']} (about {each['rows']} rows)" for each in read)
        return f"{', '.join(large)}. Plan: {_plan(conn, query)}" if large else ""


def _plan(conn: psycopg.Connection[Any], query: sql.Composable) -> str:
    rows = conn.execute(sql.SQL("explain (costs off) {}").format(query)).fetchall()
    lines = (" ".join(line.replace("->", "").split()) for (line,) in rows)
    return "; ".join(line for line in lines if not _STAND_IN.match(line))
