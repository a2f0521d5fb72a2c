"""The four roles: exactly the rights that docs/security.md says, enough for their work, and nothing more."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from outbox.policy.audit import Actor, Source
from outbox.ports import Level
from outbox.store.acts import PostgresDiscards
from outbox.store.schema.migrate import migrate
from tests.fixtures.audits import age_audit
from tests.fixtures.desks import Examine
from tests.fixtures.failures import open_database
from tests.fixtures.postgres import fresh_database
from tests.fixtures.roles import ROLES, Roles, made_roles

Connection = psycopg.Connection[Any]

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
LETTERS = {"SELECT": "S", "INSERT": "I", "UPDATE": "U", "DELETE": "D"}
Matrix = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def made(postgres_url: str, migrated_template: str) -> Iterator[Roles]:
    """One database with its roles, for all tests that only read."""
    with fresh_database(postgres_url, migrated_template) as url, made_roles(url) as roles:
        migrate(url, log=True)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(
                "create view search_documents as select ''::text as entity_type, ''::text as entity_id,"
                " '{}'::json as document"
            )
            owner.execute("select search_outbox_grant_roles()")
        yield roles


@pytest.fixture(scope="module")
def owner(made: Roles) -> Iterator[Connection]:
    with psycopg.connect(made.database, autocommit=True, prepare_threshold=None) as connection:
        yield connection


# What the page says


def table_of(heading: str) -> Matrix:
    """(thing, role) -> letters, from the page's table with this heading; a row may name several things."""
    lines = PAGE[PAGE.index(heading) :].splitlines()[2:]
    found: Matrix = {}
    for line in lines:
        if not line.startswith("|"):
            break
        things, *rights = [cell.strip() for cell in line.strip("|").split("|")]
        for thing in re.findall(r"`(\w+)`", things):
            found |= {(thing, role): given for role, given in zip(ROLES, rights, strict=True)}
    return found


def rights_on(owner: Connection, made: Roles, table: str, role: str) -> str:
    def has(privilege: str) -> str:
        named = {"role": made.name(role), "table": table, "privilege": privilege}
        whole = "select has_table_privilege(%(role)s, %(table)s, %(privilege)s)"
        if owner.execute(whole, named).fetchone() == (True,):
            return LETTERS[privilege]
        if privilege == "DELETE":
            return ""
        some = "select has_any_column_privilege(%(role)s, %(table)s, %(privilege)s)"
        return f"{LETTERS[privilege]}*" if owner.execute(some, named).fetchone() == (True,) else ""

    return " ".join(filter(None, map(has, LETTERS)))


def test_every_table_has_exactly_the_rights_of_the_page(owner: Connection, made: Roles) -> None:
    told = table_of("| table | producer |")
    tables = [
        name
        for (name,) in owner.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"
            " and relname !~ '^search_outbox_log_\\d{8}$'"  # a day is reached by way of the whole table
        )
    ]
    found = {(table, role): rights_on(owner, made, table, role) for table in tables for role in ROLES}
    assert found == told


def test_every_column_of_an_event_has_exactly_the_rights_of_the_page(owner: Connection, made: Roles) -> None:
    query = (
        "select column_name, r.role, string_agg(p.letter, ' ' order by p.place)"
        " from information_schema.columns, unnest(%s::text[]) as r (role),"
        " unnest(array['SELECT', 'INSERT', 'UPDATE'], array['S', 'I', 'U']) with ordinality as p (name, letter, place)"
        " where table_name = 'search_outbox_events'"
        " and has_column_privilege(%s || '_' || r.role, 'search_outbox_events', column_name, p.name) group by 1, 2"
    )
    rows = owner.execute(query, [list(ROLES), made.prefix]).fetchall()
    told = {key: rights for key, rights in table_of("| column of").items() if rights}
    assert {(column, role): rights for column, role, rights in rows} == told


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_reshape_a_table(owner: Connection, made: Roles, role: str) -> None:
    rows = owner.execute(
        "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
        " and has_table_privilege(%s, oid, 'TRUNCATE, REFERENCES, TRIGGER')",
        [made.name(role)],
    ).fetchall()
    assert rows == []


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_log_in_create_or_become_another_when_it_is_made(owner: Connection, role: str) -> None:
    about = owner.execute(
        "select rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication,"
        " exists (select from pg_auth_members where member = r.oid), has_schema_privilege(rolname, 'public', 'CREATE')"
        " from pg_roles r where rolname = %s",
        [f"search_outbox_{role}"],
    ).fetchone()
    assert about is not None
    assert not any(about)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_hand_on_what_it_has_or_switch_off_a_guard(owner: Connection, made: Roles, role: str) -> None:
    handed = "select 1 from pg_class, aclexplode(relacl) where grantee = %s::regrole and is_grantable"
    assert owner.execute(handed, [made.name(role)]).fetchall() == []
    with made.connect(role) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute("alter table search_outbox_events disable trigger search_outbox_guard")


# And nothing more: what each would gain by

INSERTED = "insert into search_outbox_events (entity_type, entity_id, op) values ('a', '1', 'upsert')"


def inserted(column: str, value: str) -> str:
    return INSERTED.replace(")", f", {column})", 1)[:-1] + f", {value})"


CLAIMED = "update search_outbox_events set lease_token = gen_random_uuid(), status = 'processing'"
IGNORED = (
    "insert into search_outbox_ignored_tables (source, named, reason, ignored_by) values ('pg_class', 'x', 'y', 'z')"
)
# Beside the rights on tables and columns, which are compared with the page above: one act of each sort.
REFUSED = [
    ("producer", inserted("lease_token", "gen_random_uuid()"), "forges a lease"),
    ("producer", "select search_outbox_audit_prune(now(), 0, 10, 10)", "removes traces"),
    ("producer", "select search_outbox_grant_roles()", "hands out rights"),
    ("producer", "update search_outbox_attachments set via = 'select 1'", "changes which query is run"),
    ("producer", "select setval('search_outbox_version', 1)", "sets versions back"),
    ("projector", "update search_outbox_events set payload = '{}'", "changes a document"),
    ("operator", CLAIMED, "claims"),
    ("operator", IGNORED, "lets a table be forgotten"),
    ("reader", "select * from search_outbox_events", "reads documents"),
    ("reader", "select from search_outbox_events for update", "holds rows"),
    ("reader", "select nextval('search_outbox_version')", "draws versions"),
]


@pytest.mark.parametrize(("role", "statement", "gain"), REFUSED, ids=[f"{row[0]} {row[2]}" for row in REFUSED])
def test_what_is_not_a_roles_work_is_refused(made: Roles, role: str, statement: str, gain: str) -> None:
    with made.connect(role) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(statement.encode())


GUIDE_INSERT = (
    "insert into search_outbox_events (id, entity_type, entity_id, op, event_version, status, attempts, replay_count,"
    " created_at, updated_at) values (gen_random_uuid(), 'block', gen_random_uuid(), 'upsert', 1, 'pending', 0, 0,"
    " now(), now())"
)
PRODUCED = [
    (INSERTED, "the least that a producer says"),
    (GUIDE_INSERT, "the guide's INSERT as written"),
    (INSERTED + " returning id", "with its id"),
    ("select outbox_enqueue('article', '1', 'upsert', '{}', 7, 'r', 'key-1')", "the function, with all it takes"),
    ("select outbox_enqueue('article', '1', 'upsert', '{}', 7, 'r', 'key-1')", "the same key again"),
    (inserted("status", "'failed'"), "a status that wakes the guard"),
]


def test_a_producer_produces_in_every_way_of_the_contract(roles: Roles) -> None:
    with roles.connect("producer") as connection:
        for statement, remark in PRODUCED:
            assert connection.execute(statement.encode()).rowcount == 1, remark


# A caller's temporary table must not stand in for one of ours

ESCALATIONS = [
    (
        "search_outbox_audit_head",
        "(only_one boolean, id bigint, hash bytea)",
        "insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'x', 'cli')",
    ),
    (
        "search_outbox_audit_pruned",
        "(id bigint, hash bytea)",
        "select search_outbox_audit_prune(now() + interval '1 day', 0, 1000, 1000)",
    ),
    (
        "search_outbox_discards",
        "(event_id uuid primary key, entity_type text, entity_id text, event_version bigint, seq bigint)",
        "update search_outbox_events set status = 'discarded'",
    ),
]


@pytest.mark.parametrize(("table", "columns", "act"), ESCALATIONS, ids=[row[0] for row in ESCALATIONS])
def test_a_temporary_table_never_runs_its_trigger_with_the_owners_rights(
    roles: Roles, connection: Connection, table: str, columns: str, act: str
) -> None:
    connection.execute(INSERTED)
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'x', 'cli')")
    age_audit(connection)
    with roles.connect("operator") as attacker:
        attacker.execute(f"create temporary table {table} {columns}".encode())
        if table == "search_outbox_audit_head":  # a row that the functions can go on from
            attacker.execute("insert into pg_temp.search_outbox_audit_head values (true, 1000, '\\x00')")
        attacker.execute("create temporary table caught (who text)")
        attacker.execute("grant all on pg_temp.caught to public")
        attacker.execute(
            "create function pg_temp.catch() returns trigger language plpgsql as"
            " $f$ begin insert into pg_temp.caught values (current_user); return new; end $f$"
        )
        attacker.execute(
            f"create trigger catch before insert or update on pg_temp.{table}"
            " for each row execute function pg_temp.catch()".encode()
        )
        attacker.execute(act.encode())
        assert attacker.execute("select who from pg_temp.caught").fetchall() == []


# Functions with the owner's rights: what each may be called by, where not only by those who need it

FOR_EVERYBODY: dict[str, str] = {}  # name -> why PUBLIC may execute it
DEFINERS = (
    "select oid::regprocedure::text as function, proname, oid from pg_proc"
    " where pronamespace = 'public'::regnamespace and prosecdef"
)


@pytest.fixture
def whole(database: str, connection: Connection) -> Connection:
    """Everything of ours: the optional parts, and an attached table."""
    from outbox.store.attach.attach import attach

    migrate(database, by_type=True, by_entity=True, notify=True, log=True)
    connection.execute("create table articles (id bigint primary key, title text)")
    attach(connection, "articles", entity_type="article", id_column="id")
    return connection


def test_every_function_with_the_owners_rights_searches_temporary_tables_last(whole: Connection) -> None:
    """And searches no schema but the catalogue. Every other one of ours that names a path has pg_temp last too."""
    rows = whole.execute(
        "select proname from pg_proc, lateral (select string_agg(c, ';') as path from unnest(proconfig) as c"
        " where c like 'search_path=%') as its where pronamespace = 'public'::regnamespace"
        " and case when prosecdef then its.path is distinct from 'search_path=pg_catalog, pg_temp'"
        "          else its.path not like '%, pg_temp' end"
    ).fetchall()
    assert rows == []
    assert whole.execute("select proconfig from pg_proc where proname = 'search_outbox_guard'").fetchall() == [
        (["search_path=pg_catalog, pg_temp"],)
    ]


# Functions that fit our calls better than PostgreSQL's own, in the schema of the outbox.
BAITS = [
    ("hashtextextended(text, integer)", "bigint", "select search_outbox_raise_version(5)"),
    ("setval(text, bigint)", "bigint", "select search_outbox_raise_version(5)"),
    ("nextval(text)", "bigint", "update search_outbox_events set seq = null"),
    ("format(text, text)", "text", "select search_outbox_grant_roles()"),
    ("quote_ident(name)", "text", "select search_outbox_grant_roles()"),
    ("format(text, text, text)", "text", "select search_outbox_log_days(20)"),
]


@pytest.mark.parametrize(("bait", "result", "act"), BAITS, ids=[row[0] for row in BAITS])
def test_a_function_that_others_create_in_our_schema_never_runs_with_the_owners_rights(
    whole: Connection, stranger: str, bait: str, result: str, act: str
) -> None:
    whole.execute("grant create on schema public to public")
    whole.execute("create sequence caught; grant all on sequence caught to public")  # keeps what is rolled back
    whole.execute(INSERTED)
    with psycopg.connect(stranger, autocommit=True) as attacker:
        attacker.execute(
            f"create function public.{bait} returns {result} language plpgsql as"
            f" $f$ begin perform nextval('public.caught'::regclass); return null; end $f$".encode()
        )
    whole.execute(act.encode())
    assert whole.execute("select is_called from caught").fetchone() == (False,)


def test_no_function_with_the_owners_rights_is_for_everybody(whole: Connection, roles: Roles) -> None:
    """Nor after a restore without privileges, once they are granted anew."""
    judge_definers(whole)
    whole.execute("grant execute on all functions in schema public to public")
    assert whole.execute("select search_outbox_grant_roles()").fetchall() == []
    judge_definers(whole)


def judge_definers(whole: Connection) -> None:
    rows = whole.execute(
        f"select d.proname, has_function_privilege('public', d.oid, 'EXECUTE') from ({DEFINERS}) d".encode()
    ).fetchall()
    assert {name for name, everybody in rows if everybody} == set(FOR_EVERYBODY)
    assert len(rows) >= 7, "begin, chain, end, refuse, prune, discards, raise_version"


STATE = (
    "select (select array_agg(h) from search_outbox_audit_head h)::text,"
    " (select array_agg(d) from search_outbox_discards d)::text, (select array_agg(a) from search_outbox_audit a)::text"
)
# The columns that the trigger functions read; the id is that of a discarded event.
BAIT = (
    "create temporary table bait (id uuid, status text, entity_type text, entity_id text, event_version bigint,"
    " seq bigint, hash bytea)"
)


@pytest.fixture
def stranger(whole: Connection) -> Iterator[str]:
    """A login that is a member of nothing; its address."""
    name = sql.Identifier(f"{whole.info.dbname}_stranger")
    whole.execute(sql.SQL("create role {} login password 'stranger'").format(name))
    host = f"{whole.info.host}:{whole.info.port}"
    try:
        yield f"postgresql://{whole.info.dbname}_stranger:stranger@{host}/{whole.info.dbname}"
    finally:
        whole.execute(sql.SQL("drop owned by {} cascade").format(name))
        whole.execute(sql.SQL("drop role {}").format(name))


def test_no_trigger_function_with_the_owners_rights_can_be_attached_elsewhere(whole: Connection, stranger: str) -> None:
    whole.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'x', 'cli')")
    (event,) = whole.execute(f"{INSERTED} returning id".encode()).fetchone() or (None,)
    whole.execute("update search_outbox_events set status = 'discarded'")
    before = whole.execute(STATE).fetchone()
    functions = whole.execute(f"{DEFINERS} and prorettype = 'trigger'::regtype".encode()).fetchall()
    assert len(functions) >= 5

    def tried(who: Connection, function: str, level: str) -> None:
        """Everything that a trigger fires on, so that whatever the function does would be done."""
        with who.transaction():
            who.execute(BAIT)
            who.execute("insert into bait (id, status) values (%s, 'discarded')", [event])
            who.execute(
                f"create trigger hook before insert or update or delete on bait for each {level}"
                f" execute function {function}".encode()
            )
            who.execute("select set_config('search_outbox.chain', '7:00', true)")
            who.execute("update bait set status = 'pending'")

    with psycopg.connect(stranger, autocommit=True) as attacker:
        for function, level in product([row[0] for row in functions], ("row", "statement")):
            with pytest.raises(InsufficientPrivilege, match="permission denied for function"):
                tried(attacker, function, level)
            # The owner, which has the right to execute it, is refused by the function itself.
            with pytest.raises(InsufficientPrivilege, match="is not for table"):
                tried(whole, function, level)
    assert whole.execute(STATE).fetchone() == before


def test_an_operator_cannot_erase_the_trail(roles: Roles, connection: Connection) -> None:
    def rows() -> list[tuple[Any, ...]]:
        return connection.execute("select action, actor, detail from search_outbox_audit order by id").fetchall()

    everything = "select removed from search_outbox_audit_prune('infinity', 0, 9223372036854775807, 100000)"
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'mallory', 'cli')")
    with roles.connect("operator") as operator:
        assert operator.execute(everything).fetchone() == (0,), "the last seven days stay"
        assert [row[0] for row in rows()] == ["PAUSED"]
        age_audit(connection)
        assert operator.execute(everything).fetchone() == (1,)
        ((action, actor, detail),) = rows()
        assert (action, actor, detail["login"]) == ("AUDIT_PRUNE_SUMMARY", *[roles.name("operator")] * 2)
        assert (detail["removed"], detail["first"], detail["last"]) == (1, 1, 1)
        assert operator.execute(everything).fetchone() == (0,), "nor does the row that says so go"


# Limits, and an installation that may not make roles

LIMITS = "select name, setting from pg_settings where name in ({})".format(
    "'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'"
)


def audited(connection: Connection) -> list[tuple[Any, ...]]:
    asked = "select action, actor, source, login, detail ->> 'status' from search_outbox_audit order by id"
    return connection.execute(asked.encode()).fetchall()


def test_what_is_discarded_or_deleted_by_sql_is_audited_with_its_login(roles: Roles, connection: Connection) -> None:
    for _ in range(3):
        connection.execute(INSERTED)
    me = roles.name("operator")
    with roles.connect("operator") as operator:
        operator.execute(
            "update search_outbox_events set status = 'discarded' where id in (select id from"
            " search_outbox_events order by seq limit 1)"
        )
        operator.execute("update search_outbox_events set status = 'failed' where status = 'pending'")
        with operator.transaction():
            operator.execute("delete from search_outbox_events where status = 'failed'")
            assert len(audited(connection)) == 1, "the commit writes them"
        operator.execute("delete from search_outbox_events")  # the discarded one, as a prune does
    deleted = ("EVENT_DELETED", me, "sql", me, "failed")
    assert audited(connection) == [("EVENT_DISCARDED", me, "sql", me, None), deleted, deleted]


def test_a_row_that_an_operator_inserts_has_the_operators_login(roles: Roles, connection: Connection) -> None:
    with roles.connect("operator") as operator:
        operator.execute(
            "insert into search_outbox_audit (action, actor, role, source, login)"
            " values ('PAUSED', 'alice', 'admin', 'console', 'search_outbox_console')"
        )
        with pytest.raises(psycopg.Error, match="INSERT only"):
            connection.execute("update search_outbox_audit set login = null")
    assert audited(connection) == [("PAUSED", "alice", "console", roles.name("operator"), None)]


def test_what_the_program_discards_is_audited_once(roles: Roles, connection: Connection) -> None:
    made = connection.execute(f"{INSERTED} returning id".encode()).fetchone()
    assert made is not None
    with open_database(roles.url("operator"), size=1) as pool:
        assert PostgresDiscards(pool).discard(made[0], Actor("alice", Source.CLI), "why") is not None
    assert audited(connection) == [("EVENT_DISCARDED", "alice", "cli", roles.name("operator"), None)]


def page_limits() -> dict[str, dict[str, str]]:
    lines = PAGE[PAGE.index("| role | statement_timeout |") :].partition("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {role: dict(zip(head[1:], values, strict=True)) for role, *values in rows}


@pytest.mark.parametrize("role", ROLES)
def test_limits_are_in_force_for_who_logs_in_as_the_role(roles: Roles, role: str) -> None:
    milliseconds = {"60s": "60000", "10s": "10000", "5min": "300000", "30s": "30000"}
    told = {name: milliseconds[value] for name, value in page_limits().get(role, {}).items()}
    with roles.connect(role) as connection:
        found: dict[str, str] = dict(connection.execute(LIMITS).fetchall())
    assert found == (told or dict.fromkeys(found, "0"))


def test_one_without_the_right_to_make_roles_sees_what_to_run_and_everything_else_is_there(
    empty_database: str, examine: Examine
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as admin:
        name = admin.info.dbname
        owner = sql.Identifier(f"{name}_owner")
        admin.execute(sql.SQL("create role {} login password 'x'").format(owner))
        admin.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(name), owner))
        prefix = sql.SQL("alter database {} set search_outbox.role_prefix = {}")
        admin.execute(prefix.format(sql.Identifier(name), sql.Literal(name)))
        parts = urlsplit(empty_database)
        url = parts._replace(netloc=f"{name}_owner:x@{parts.netloc.rpartition('@')[2]}").geturl()
        said: list[str] = []
        try:
            assert "0013_roles" in migrate(url, say=said.append)
            (told,) = [line for line in said if "docs/security.md" in line]
            (missing,) = examine(url)["roles"]
            assert missing.level is Level.WARN
            assert "search_outbox_grant_roles" in missing.remedy
            for statement in told.splitlines()[2:]:
                admin.execute(statement.encode())
            with psycopg.connect(url, autocommit=True) as connection:
                remaining = connection.execute("select search_outbox_grant_roles()").fetchall()
            # Grants are the owner's own to repeat; only the roles' limits stay an administrator's.
            assert all("alter role" in statement for (statement,) in remaining)
            assert examine(url)["roles"][0].level is Level.OK
        finally:
            every = sql.SQL(", ").join(sql.Identifier(f"{name}_{role}") for role in ROLES)
            admin.execute(sql.SQL("drop owned by {}").format(every))
            admin.execute(sql.SQL("drop role {}").format(every))
            admin.execute(sql.SQL("reassign owned by {} to current_user").format(owner))
            admin.execute(sql.SQL("drop role {}").format(owner))
