"""Owns finding and dropping the indexes that spoil HOT claims; it never touches a unique one.

PostgreSQL may keep a new row version on its page, and leave every index alone, only if no changed column is in
any index. One index on a column that the claim writes makes each claim pay for all of them (measured on the
guide's table: 700 events a second instead of 40,000).
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

CLAIM_WRITES = (
    "status",
    "owner",
    "lease_until",
    "lease_token",
    "processing_started_at",
    "last_attempt_at",
    "attempts",
    "updated_at",
)
"""What a claim of a fresh row changes."""

# pg_depend knows the columns of keys, expressions and predicates alike.
_FIND = """
    select i.relname, n.nspname, array_agg(distinct a.attname::text order by a.attname::text),
           x.indisunique or exists (select from pg_constraint as k where k.conindid = x.indexrelid),
           pg_get_indexdef(x.indexrelid), pg_relation_size(x.indexrelid)
      from pg_index as x
      join pg_class as i on i.oid = x.indexrelid
      join pg_namespace as n on n.oid = i.relnamespace
      join pg_depend as d on d.classid = 'pg_class'::regclass and d.objid = x.indexrelid
                         and d.refclassid = 'pg_class'::regclass and d.refobjid = x.indrelid
      join pg_attribute as a on a.attrelid = x.indrelid and a.attnum = d.refobjsubid
     where x.indrelid = 'search_outbox_events'::regclass and a.attname = any (%s)
       and i.relam <> coalesce((select oid from pg_am where amname = 'brin'), 0)
     group by x.indexrelid, i.relname, n.nspname, x.indisunique
     order by i.relname
"""


@dataclass(frozen=True, slots=True)
class SlowIndex:
    """An index that makes every claim touch every index. `kept` ones are unique: their owner must decide."""

    name: str
    schema: str
    columns: tuple[str, ...]
    kept: bool
    definition: str
    size_bytes: int


def find(conn: psycopg.Connection) -> list[SlowIndex]:
    """The indexes of the events table that use a column that a claim writes."""
    rows = conn.execute(_FIND, (list(CLAIM_WRITES),)).fetchall()
    return [SlowIndex(name, schema, tuple(cols), kept, ddl, size) for name, schema, cols, kept, ddl, size in rows]


def drop(conn: psycopg.Connection) -> list[str]:
    """Drop them concurrently, which blocks nobody, and return their names. `conn` must be in autocommit."""
    dropped = [index for index in find(conn) if not index.kept]
    for index in dropped:
        conn.execute(sql.SQL("drop index concurrently if exists {}").format(sql.Identifier(index.schema, index.name)))
    return [index.name for index in dropped]
