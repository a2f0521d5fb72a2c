"""Owns telling which schema a database has, what it lacks, and which indexes spoil HOT claims; drops those if asked.

PostgreSQL may keep a new row version on its page, and leave every index alone, only if no changed column is in
any index. One index on a column that the claim writes makes each claim pay for all of them (measured on the
guide's table: 700 events per second instead of 40,000). A unique one is never touched.
"""

from functools import partial

import psycopg
from psycopg import sql

from outbox.errors import NoEncoding
from outbox.policy.schema import Applied, SchemaState, SchemaStatus, SlowIndex, State
from outbox.store.schema import files
from outbox.store.schema.files import PARTS, Migration

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
           x.indisunique or exists (select from pg_constraint as k where k.conindid = x.indexrelid)
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


def find_slow(conn: psycopg.Connection) -> list[SlowIndex]:
    rows = conn.execute(_FIND, (list(CLAIM_WRITES),)).fetchall()
    return [SlowIndex(name, schema, tuple(columns), kept) for name, schema, columns, kept in rows]


def drop_slow(conn: psycopg.Connection) -> list[str]:
    """Drop them concurrently, which blocks nobody, and return their names. `conn` must be in autocommit."""
    dropped = [index for index in find_slow(conn) if not index.kept]
    for index in dropped:
        conn.execute(sql.SQL("drop index concurrently if exists {}").format(sql.Identifier(index.schema, index.name)))
    return [index.name for index in dropped]


# A session that keeps numbers in a cache draws one that is older than what others have used since: what it read last
# would lose.
_SEQUENCE = "select seqcache, seqincrement from pg_sequence where seqrelid = to_regclass('search_outbox_version')"


def check_schema(conn: psycopg.Connection) -> SchemaState:
    """Whether this program fits the schema that `conn` sees. Cheap: one small table and a row. Raises NoEncoding."""
    if conn.info.parameter_status("server_encoding") == "SQL_ASCII":
        raise NoEncoding
    known = {migration.name: migration for migration in files.numbered()}
    rows = applied(conn)
    have = {row.name: row.checksum for row in rows if row.number is not None}
    found = max((row.number for row in rows if row.number is not None), default=0)
    missing = tuple(name for name in known if name not in have)
    changed = tuple(name for name, checksum in have.items() if name in known and known[name].checksum != checksum)
    state = _judge(found, missing, changed)
    if state == "ok" and (wrong := _unordered(conn)):
        return SchemaState("unordered", found, files.latest(), (wrong,))
    return SchemaState(state, found, files.latest(), changed if state == "changed" else missing)


def _unordered(conn: psycopg.Connection) -> str | None:
    row = conn.execute(_SEQUENCE).fetchone()
    cache, increment = row or (None, None)
    return None if cache == increment == 1 else f"search_outbox_version has cache {cache}, increment {increment}"


def _judge(found: int, missing: tuple[str, ...], changed: tuple[str, ...]) -> State:
    if found > files.latest():
        return "too_new"
    if changed:
        return "changed"
    if missing:
        return "too_old" if found else "missing"
    return "ok"


def applied(conn: psycopg.Connection) -> tuple[Applied, ...]:
    """What was applied, in order; nothing where the table of migrations is not there."""
    if not _exists(conn, "search_outbox_migrations"):
        return ()
    rows = conn.execute(
        "select name, number, checksum, mode, applied_at, applied_by, duration_ms"
        " from search_outbox_migrations order by number nulls last, applied_at"
    ).fetchall()
    return tuple(Applied(*row) for row in rows)


def read_status(conn: psycopg.Connection) -> SchemaStatus:
    return SchemaStatus(
        schema=check_schema(conn),
        applied=applied(conn),
        pending=tuple(migration.name for migration in pending(conn)),
        parts={part: has_part(conn, part) for part in PARTS},
        slow_indexes=tuple(find_slow(conn)) if _exists(conn, "search_outbox_events") else (),
    )


def pending(conn: psycopg.Connection, parts: tuple[str, ...] = ()) -> list[Migration]:
    have = {row.name for row in applied(conn)}
    numbered = [migration for migration in files.numbered() if migration.name not in have]
    return [*numbered, *(files.part(part) for part in parts if not has_part(conn, part))]


def has_part(conn: psycopg.Connection, part: str) -> bool:
    """Recorded and whole: people drop indexes and triggers by hand, and an older release installed fewer."""
    if all(row.name != part for row in applied(conn)):
        return False
    indexes = files.part(part).indexes
    valid = conn.execute(
        "select count(*) from pg_index where indexrelid in (select to_regclass(name) from unnest(%s::text[]) as name)"
        " and indisvalid",
        (indexes,),
    ).fetchone()
    triggers = files.part(part).triggers
    counted = "select count(distinct tgname) from pg_trigger where tgname = any (%s)"
    return valid == (len(indexes),) and conn.execute(counted, (triggers,)).fetchone() == (len(triggers),)


has_by_type = partial(has_part, part="by_type")  # claims by entity type have their indexes
has_by_entity = partial(has_part, part="by_entity")  # an entity's done events can be found by its id
has_notify = partial(has_part, part="notify")  # inserts wake a LISTEN on `search_outbox`


def _exists(conn: psycopg.Connection, table: str) -> bool:
    return conn.execute("select to_regclass(%s) is not null", (table,)).fetchone() == (True,)
