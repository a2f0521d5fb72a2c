"""An intruder against a stack that the shipped files start: every login of the database, one without a role among them,
people with and without tokens, and whoever reaches a port, try the whole list. Nothing gets through.

Each act of the list is shown to work for the superuser, so that it is refused for its rights and not for its text. What
is planted is left in place while the owner, the superuser and the daemon do their work over it. Positions that need
other servers are elsewhere (docs/security.md): a stolen key of Elasticsearch, Kafka's records, Kafka Connect, TLS.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch
from psycopg import sql

from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.web import application, routing
from tests.fixtures.commands import call
from tests.fixtures.console import TOKENS, tokens_file
from tests.fixtures.deployment import DEPLOY, settings_in, unit_file
from tests.fixtures.processes import RunningProcess, find_free_port, http_get
from tests.fixtures.starting import COLD

SYSTEMD = DEPLOY / "systemd"
# The passwords of deploy/compose/*.sql, which the stack's own logins are made with.
PASSWORD = "wordloom"
LOGINS = {
    "producer": "search_outbox_producer",
    "projector": "search_outbox_projector",
    "operator": "search_outbox_operator",
    "reader": "search_outbox_reader",
    "connector": "outbox_connector",
    "shop": "shop",  # owns its tables, and is a member of search_outbox_producer
    "roleless": "roleless",  # a login of the server, without any of our roles
}
CANARY = "canary-5b1f"
Connection = psycopg.Connection[Any]

SHOP = """
create role shop login password 'wordloom' in role search_outbox_producer;
create role roleless login password 'wordloom';
create schema shop authorization shop;
set role shop;
create table shop.articles (id int primary key, author_id int, title text);
create table shop.authors (id int primary key, name text);
grant usage on schema shop to wordloom, search_outbox_projector, search_outbox_operator;
grant select, references, trigger on all tables in schema shop to wordloom, search_outbox_projector;
reset role;
"""
VIEW = """
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           json_build_object('title', a.title, 'author', u.name) as document
      from shop.articles as a left join shop.authors as u on u.id = a.author_id;
grant select on search_documents to search_outbox_projector, search_outbox_operator;
"""
EVENTS = f"""
insert into search_outbox_events (entity_type, entity_id, op, payload)
    values ('note', '1', 'upsert', '{{"t": "{CANARY}"}}');
insert into search_outbox_audit (action, actor, source, reason) values ('PAUSED', 'alice', 'cli', 'as it was');
"""

# What must be as it was, whoever has tried whatever. One row per thing, as text.
UNTOUCHED = """
select 'role', concat_ws(' ', rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolconfig)
  from pg_roles where rolname !~ '^pg_'
union all select 'member', roleid::regrole || ' of ' || member::regrole from pg_auth_members
union all select 'relation', concat_ws(' ', relnamespace::regnamespace, relname, relkind, relowner::regrole, relacl)
  from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'v', 'S', 'p', 'm', 'f')
union all select 'function', concat_ws(' ', oid::regprocedure, proowner::regrole, proacl, md5(prosrc), proconfig)
  from pg_proc where pronamespace = 'public'::regnamespace
union all select 'trigger', concat_ws(' ', tgrelid::regclass, tgname, tgenabled, tgfoid::regproc)
  from pg_trigger where tgrelid::regclass::text like 'search\\_outbox%' and not tgisinternal
union all select 'rule', rulename || ev_class::regclass
  from pg_rewrite where ev_class::regclass::text like 'search\\_outbox%'
union all select 'schema', concat_ws(' ', nspname, nspowner::regrole, nspacl) from pg_namespace where nspname !~ '^pg_'
union all select 'database', concat_ws(' ', datname, datdba::regrole, datacl) from pg_database
union all select 'setting', concat_ws(' ', setdatabase, setrole::regrole, setconfig) from pg_db_role_setting
union all select 'attachment', md5(a::text) from search_outbox_attachments as a
union all select 'ignored', md5(a::text) from search_outbox_ignored_tables as a
union all select 'type', entity_type from search_outbox_entity_types
union all select 'control', scope from search_outbox_controls
union all select 'migration', name || checksum from search_outbox_migrations
union all select 'audit', concat_ws(' ', action, actor, login, encode(hash, 'hex')) from search_outbox_audit
union all select 'note', concat_ws(' ', status, op, payload::text, event_version)
  from search_outbox_events where entity_type = 'note'
"""

C_FUNCTION = "create function shop.f() returns int language c as 'x'"
# What nobody of them may do.
NOBODYS: Final = (
    # become somebody else
    "set role wordloom",
    "set session authorization wordloom",
    "alter role current_user superuser",
    "alter role wordloom password 'mine'",
    "create role mine superuser",
    "grant search_outbox_operator to shop",
    "grant wordloom to roleless",
    "alter table search_outbox_events owner to current_user",
    "reassign owned by wordloom to shop",
    # leave the database
    "copy (select 1) to program 'cat > /dev/null'",
    "copy (select 1) to '/dev/null'",
    "select pg_read_file('PG_VERSION')",
    "select pg_ls_dir('.')",
    "select lo_import('PG_VERSION')",
    "select * from pg_hba_file_rules",
    "select rolpassword from pg_authid",
    C_FUNCTION,
    "create publication mine for all tables",
    "select pg_reload_conf()",
    "select pg_cancel_backend({victim})",
    "set session_replication_role = replica",
    # change what others run
    "create function public.mine() returns int language sql as 'select 1'",
    "create function public.outbox_refresh(text, varchar) returns uuid language sql as 'select null::uuid'",
    "create table public.search_outbox_mine (id int)",
    "drop view search_documents",
    "alter view search_documents owner to current_user",
    "drop function outbox_refresh",
    "alter function outbox_enqueue owner to current_user",
    ("create trigger mine before insert on search_outbox_events for each row execute function search_outbox_guard()"),
    "alter table search_outbox_events disable trigger user",
    "drop trigger search_outbox_guard on search_outbox_events",
    "create rule mine as on update to search_outbox_events do instead nothing",
    "create policy mine on search_outbox_events using (true)",
    "create index mine on search_outbox_events (id)",
    "create table mine (id uuid references search_outbox_events)",
    "comment on table search_outbox_events is 'mine'",
    "alter database {database} set search_path = shop",
    "alter default privileges for role wordloom grant all on tables to public",
    (
        "insert into search_outbox_attachments (id, source, named, entity_type, via, per_row, path,"
        " function) values (1, 'pg_class', 'x', 'article', 'select 1', false, '{{public}}', 'f')"
    ),
    "update search_outbox_attachments set via = 'select 1' where via is not null",
    "delete from search_outbox_attachments",
    ("insert into search_outbox_ignored_tables (source, named, reason, ignored_by) values ('pg_class', 'x', 'y', 'z')"),
    "delete from search_outbox_migrations",
    "truncate search_outbox_events cascade",
    "drop table search_outbox_events cascade",
    # change what is projected
    "update search_outbox_events set payload = '{{}}'",
    "update search_outbox_events set entity_id = 'x'",
    "update search_outbox_events set event_version = 1",
    "select setval('search_outbox_version', 1)",
    # remove traces
    "delete from search_outbox_audit",
    "update search_outbox_audit set actor = 'x'",
    "truncate search_outbox_audit",
    "update search_outbox_audit_head set id = 0",
    "insert into search_outbox_audit_pruned (id) values (1)",
    "alter table search_outbox_audit disable trigger all",
)
# What is the work of some, by the rights in docs/security.md, and refused to the others.
SOMES: Final = {
    "alter role search_outbox_projector set search_path = shop": "projector",
    "select pg_create_physical_replication_slot('mine', true, true)": "connector",
    "insert into search_outbox_entity_types values ('mine', 'view', 'ours', false, 'me')": "operator projector",
    "select payload from search_outbox_events": "operator projector",
    "select * from search_outbox_log": "connector operator projector",
    "select document from search_documents": "operator projector",
    "select url from search_outbox_webhook_deliveries": "operator projector",
    "select * from search_outbox_audit": "operator projector reader",
    "copy search_outbox_events to stdout": "operator projector",
    "update search_outbox_events set status = 'done', processed_at = now()": "operator projector",
    "update search_outbox_events set fanout_cursor = 'z'": "projector",
    "delete from search_outbox_events": "operator projector",
    (
        "insert into search_outbox_events (entity_type, entity_id, op, payload) values ('note', '2', 'upsert', '{{}}')"
    ): "operator producer projector shop",
    "insert into search_outbox_controls (scope, paused_by, reason) values ('*', 'x', 'y')": "operator projector",
    "insert into search_outbox_places (entity_type, entity_id, drawn) values ('x', '1', 1)": "operator projector",
    "delete from search_outbox_leases": "projector",
}
ACTS: Final = dict.fromkeys(NOBODYS, "") | SOMES
# Refused for a guard, whoever it is, the superuser too: rights are not what stops these.
GUARDED = {
    "delete from search_outbox_audit",
    "update search_outbox_audit set actor = 'x'",
    "truncate search_outbox_audit",
    C_FUNCTION,
}
REFUSALS = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException)
# What a table's owner may write where others read it: names, arguments, comments, policies, functions named like ours.
LOOT = "create table public.loot (); grant wordloom to roleless; alter role roleless superuser"
ARGUMENTS = json.dumps({"type": "article", "via": f"select 1; {LOOT}; --", "id": None, "columns": [], "routing": None})
SPRING = f"""
create function shop.spring() returns boolean language plpgsql as $f$
begin
    begin execute $q${LOOT}$q$; exception when others then null; end;
    begin
        update search_outbox_events set status = 'discarded', op = 'delete' where entity_type = 'note';
    exception when others then null; end;
    begin
        insert into search_outbox_controls (scope, paused_by, reason) values ('*', 'shop', current_query());
    exception when others then null; end;
    perform set_config('search_path', 'shop', false);
    perform pg_notify('loot', (select max(payload::text) from public.search_outbox_events));
    return true;
exception when insufficient_privilege then return true;
end
$f$
"""
LIKE_OURS = """
create function shop.search_outbox_capture_articles_00000000() returns trigger language plpgsql as $f$
begin
    perform shop.spring();
    return null;
end
$f$
"""
TRAPS: Final = (
    SPRING,
    LIKE_OURS,
    """create trigger search_outbox_capture_00000000_ins after update on shop.articles for each statement
       execute function shop.search_outbox_capture_articles_00000000({arguments}, 'search_outbox', '1')""",
    "create policy trap on shop.authors using (shop.spring())",
    "alter table shop.authors enable row level security, force row level security",
    "create index trap on shop.articles ((shop.calm(title))) where shop.calm(title) is not null",
    "comment on table shop.articles is {hostile}",
    "comment on column shop.articles.title is {hostile}",
    "create table shop.{odd} (id int primary key)",
    "alter table shop.articles add column {odd} int",
    "create domain shop.int4 as int check (shop.spring())",
    "create function shop.length(json) returns int language sql as 'select shop.spring()::int'",
    "create function shop.same(text, text) returns boolean language sql as 'select shop.spring()'",
    "create operator shop.= (leftarg = text, rightarg = text, function = shop.same)",
    "analyze shop.articles",
)
HOSTILE = f"x'); {LOOT}; -- $$; {LOOT}; $capture$ %s {{0}} \x1b[2J <script>alert(1)</script>"


@dataclass
class ShippedSite:
    postgres: EmbeddedPostgres
    database: str
    folder: Path
    elastic_url: str
    index: str
    processes: dict[str, RunningProcess] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return self.postgres.database_url(self.database)

    def url(self, login: str) -> str:
        parts = urlsplit(self.root)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{quote(login)}:{PASSWORD}@{host}").geturl()

    @contextmanager
    def as_(self, login: str) -> Iterator[Connection]:
        with psycopg.connect(self.url(LOGINS.get(login, login)), autocommit=True) as connection:
            yield connection

    def settings(self, login: str = "wordloom", **more: str) -> dict[str, str]:
        """Of a command, as deploy/systemd/outbox.env.example has them."""
        lines = (SYSTEMD / "outbox.env.example").read_text().splitlines()
        shipped = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        here = {"ELASTIC_URL": self.elastic_url, "ELASTIC_INDEX": self.index, "DATABASE_URL": self.url(login)}
        return {**shipped, **here, **more}

    def start(self, unit: str, login: str, **more: str) -> None:
        """As the unit has it, but for ports, folders and servers of this machine."""
        credentials = self.folder / unit
        credentials.mkdir()
        (credentials / "database_url").write_text(self.url(login))
        (credentials / "database_url").chmod(0o600)
        section = unit_file(SYSTEMD / unit)["Service"]
        (command,) = [value for key, value in section if key == "ExecStart"]
        env = {name: value.replace("%d", str(credentials)) for name, value in settings_in(section).items()}
        env = {**self.settings(), **env, **more, "OUTBOX_WORKER_ID": "here-all"}
        del env["DATABASE_URL"]
        self.processes[unit] = RunningProcess([*COLD, *command.split()[1:]], env)

    def shape(self) -> list[tuple[str, str]]:
        with psycopg.connect(self.root, autocommit=True) as root:
            return sorted(root.execute(UNTOUCHED.encode()).fetchall())


@pytest.fixture(scope="module")
def site(elastic_url: str, es: Elasticsearch) -> Iterator[ShippedSite]:
    with ExitStack() as open_ones, temporary_folder(default_data_dir()) as folder:
        postgres = open_ones.enter_context(
            EmbeddedPostgres(folder / "db", settings={"fsync": "off", "wal_level": "logical"})
        )
        made = ShippedSite(postgres, "wordloom_dev", folder, elastic_url, f"intruder-{folder.name.lower()}")
        with psycopg.connect(postgres.url, autocommit=True) as root:
            # The tables' owner is no superuser; it makes the roles itself.
            root.execute(f"create role wordloom login createrole password '{PASSWORD}'".encode())
            root.execute("create database wordloom_dev owner wordloom")
        _prepare(made)
        open_ones.callback(lambda: [es.indices.delete(index=name) for name in es.indices.get(index=f"{made.index}*")])
        open_ones.callback(lambda: [process.kill() for process in made.processes.values()])
        _run(made)
        yield made


def _prepare(site: ShippedSite) -> None:
    for log in ("--log", "--no-log"):
        done = call("migrate", log, env=site.settings())
        assert done.code == 0, done.err
    with psycopg.connect(site.root, autocommit=True) as root:
        root.execute((DEPLOY / "compose" / "logins.sql").read_bytes())
        root.execute((DEPLOY / "compose" / "connector-login.sql").read_bytes())
        root.execute(SHOP.encode())
    with site.as_("wordloom") as owner:
        owner.execute(VIEW.encode())
    done = call("attach", "--from-view", "--yes", env=site.settings(DATABASE_URL=site.root))
    assert done.code == 0, done.err
    done = call("index", "create", env=site.settings())
    assert done.code == 0, done.err
    with psycopg.connect(site.root, autocommit=True) as root:
        root.execute(EVENTS.encode())


def _run(site: ShippedSite) -> None:
    tokens = tokens_file(site.folder)
    ports = [str(find_free_port()) for _ in range(2)]
    site.start("outbox-projector@.service", "search_outbox_projector", OUTBOX_METRICS_PORT=ports[0])
    site.start(
        "outbox-console.service",
        "search_outbox_operator",
        OUTBOX_CONSOLE_PORT=ports[1],
        OUTBOX_CONSOLE_TOKENS_FILE=str(tokens),
    )
    daemon, console = site.processes.values()
    daemon.wait_for_http("/readyz")
    console.wait_until(lambda: _answers(f"http://127.0.0.1:{ports[1]}/healthz"), "the console")
    with psycopg.connect(site.root, autocommit=True) as root:
        open_ones = "select count(*) from search_outbox_events where processed_at is null"
        daemon.wait_until(lambda: root.execute(open_ones).fetchone() == (0,), "what was written is projected")


def _answers(url: str) -> bool:
    try:
        return http_get(url)[0] == 200
    except OSError:
        return False


def console_url(site: ShippedSite) -> str:
    return f"http://127.0.0.1:{site.processes['outbox-console.service'].env['OUTBOX_CONSOLE_PORT']}"


def tried(connection: Connection, act: str) -> psycopg.Error | None:
    """What came of it; nothing of it stays."""
    try:
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            if re.match(r"copy .* to stdout", act):
                with cursor.copy(act.encode()) as copy:
                    list(copy)
            else:
                cursor.execute(act.encode())
    except psycopg.Error as error:
        return error
    return None


@pytest.mark.parametrize("login", LOGINS)
def test_a_login_does_what_is_its_work_and_nothing_else_of_the_list(site: ShippedSite, login: str) -> None:
    before = site.shape()
    got_through, refused = [], []
    with psycopg.connect(site.root, autocommit=True) as victim, site.as_(login) as intruder:
        for act, workers in ACTS.items():
            allowed = workers.split()
            text = act.format(victim=victim.info.backend_pid, database=site.database)
            error = tried(intruder, text)
            if error is None and login not in allowed:
                got_through.append(act)
            if login in allowed and isinstance(error, REFUSALS):
                refused.append((act, str(error)))
            assert error is None or isinstance(error, REFUSALS) or login in allowed, f"{act}: {error!r}"
    assert got_through == []
    assert refused == [], "the list says more than the roles give"
    assert site.shape() == before


def test_every_act_of_the_list_works_for_whoever_has_the_right(site: ShippedSite) -> None:
    """Otherwise a mistake in its text would look like a refusal."""
    with psycopg.connect(site.root, autocommit=True) as victim, psycopg.connect(site.root, autocommit=True) as root:
        failed = {
            act: repr(error)
            for act in ACTS
            if act not in GUARDED
            if (error := tried(root, act.format(victim=victim.info.backend_pid, database=site.database)))
        }
    assert failed == {}


@pytest.mark.parametrize("login", LOGINS)
def test_no_function_with_the_owners_rights_serves_an_intruder(site: ShippedSite, login: str) -> None:
    """Each is called with nothing and with hostile text; what it may do by the page leaves our tables as they were."""
    before = site.shape()
    listed = (
        "select oid::regproc::text, proargtypes::regtype[]::text[] from pg_proc"
        " where prosecdef and pronamespace = 'public'::regnamespace and prorettype <> 'trigger'::regtype"
    )
    with psycopg.connect(site.root, autocommit=True) as root:
        functions = root.execute(listed).fetchall()
    assert functions
    with site.as_(login) as intruder:
        for name, types in functions:
            for value in ("null", sql.Literal(HOSTILE).as_string(intruder)):
                given = ", ".join(
                    f"{value}::{kind}" if value == "null" or kind == "text" else f"null::{kind}" for kind in types
                )
                tried(intruder, f"select {name}({given})")
    assert site.shape() == before


def test_what_a_tables_owner_plants_is_never_run_for_those_who_come_after(site: ShippedSite) -> None:
    """The owner and the superuser run commands, the daemon works, a viewer opens every page: nothing of it happens."""
    before = site.shape()
    with site.as_("shop") as shop:
        shop.execute("create function shop.calm(text) returns text immutable language sql as 'select $1'")
        odd = sql.Identifier(HOSTILE[:60]).as_string(shop)
        for trap in TRAPS:
            named = {"arguments": ARGUMENTS, "hostile": HOSTILE}
            text = {name: sql.Literal(value).as_string(shop) for name, value in named.items()}
            shop.execute(_filled(trap, odd=odd, **text).encode())
        shop.execute("insert into shop.authors values (1, 'Ada')")
        shop.execute("insert into shop.articles (id, author_id, title) values (1, 1, %s)", [HOSTILE])
        shop.execute("update shop.authors set name = %s", [HOSTILE])
        shop.execute("update shop.articles set title = title || '!'")
    with site.as_("producer") as producer:
        for place in ("entity_type", "entity_id", "op", "routing", "traceparent", "tracestate", "idempotency_key"):
            given = {"entity_type": "note2", "entity_id": place, "op": "upsert", "payload": '{"t": 1}', place: HOSTILE}
            names = sql.SQL(", ").join(map(sql.Identifier, given))
            values = sql.SQL(", ").join(map(sql.Literal, given.values()))
            insert = sql.SQL("insert into search_outbox_events ({}) values ({})").format(names, values)
            with suppress(psycopg.IntegrityError, psycopg.DataError):  # some columns take only what fits them
                producer.execute(insert)
    for url in (site.url("wordloom"), site.root):
        for words, codes in COMMANDS.items():
            done = call(*words, env=site.settings(DATABASE_URL=url))
            assert done.code in codes, (words, done.code, done.err)
            assert "\x1b[2J" not in done.out + done.err
    with site.as_("producer") as producer:
        producer.execute("select public.outbox_enqueue('note2', 'last', 'upsert', '{\"t\": 1}')")
    daemon = site.processes["outbox-projector@.service"]
    with psycopg.connect(site.root, autocommit=True) as root:
        waiting = "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
        daemon.wait_until(lambda: root.execute(waiting).fetchone() == (0,), "every event's end")
    with client(site, "viewer") as viewer:
        for door in (*application.PAGES, *application.API):
            if door.method == "GET" and "{" not in door.path:
                prefix = routing.API_PREFIX if door in application.API else ""
                page = viewer.get(prefix + door.path)
                assert "text/html" not in page.headers.get("content-type", "") or "<script>alert" not in page.text
    after = site.shape()
    assert [row for row in after if row not in before and not _of_their_own(row)] == []
    assert [row for row in before if row not in after] == []
    with psycopg.connect(site.root, autocommit=True) as root:
        assert root.execute("select to_regclass('public.loot') is null").fetchone() == (True,)


VIA = "select a.id from shop.articles as a where a.author_id = changed.id"
# What each ends with: the traps are a finding of `doctor`, a policy is a reason why the documents differ.
COMMANDS: Final = {
    ("doctor",): {1},
    ("doctor", "--json"): {1},
    ("attach", "--from-view", "--dry-run"): {0},
    ("attach", "shop.articles", "--type", "article", "--id", "id", "--sql"): {0},
    ("attach", "shop.authors", "--type", "article", "--via", VIA, "--sql"): {0},
    ("migrate",): {0},
    ("migrate", "status"): {0},
    ("status",): {0},
    ("verify",): {3},  # payloads keep the notes, which no view has
    ("audit", "verify"): {0},
    ("types",): {0},
    ("backfill", "--type", "article"): {0},
}


def _filled(text: str, /, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _of_their_own(row: tuple[str, str]) -> bool:
    """What these acts are for: types of new events, and what a viewer exports."""
    return row[0] == "type" or row[1].startswith(("AUDIT_EXPORTED vic ", "BACKFILL_"))


@contextmanager
def client(site: ShippedSite, role: str | None, **headers: str) -> Iterator[httpx.Client]:
    token = {"authorization": f"Bearer {TOKENS.get(role, role)}"} if role else {}
    with httpx.Client(base_url=console_url(site), headers={**token, **headers}, trust_env=False, timeout=60) as made:
        yield made


PATHS = ("/metrics", "/healthz", "/readyz", "/", "/../etc/passwd", "/static/../auth.py", "/%2e%2e/etc/passwd")


def test_whoever_reaches_a_port_finds_counts_and_no_act_no_file_and_no_secret(site: ShippedSite) -> None:
    daemon = site.processes["outbox-projector@.service"]
    secrets = (CANARY, PASSWORD + "@", *TOKENS.values())
    for base in (daemon.metrics_url, console_url(site)):
        for path in PATHS:
            _, body = http_get(base + path)
            assert not any(secret in body for secret in secrets), path
            assert "root:" not in body
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        request = urllib.request.Request(f"{daemon.metrics_url}/healthz", method=method, data=b"x")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code in (404, 405, 501)
        refused.value.close()


def test_the_units_listen_on_loopback_alone(site: ShippedSite) -> None:
    found = {}
    for unit, process in site.processes.items():
        sockets = psutil.Process(process.pid).net_connections(kind="inet")
        found[unit] = {socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN}
    assert found == {unit: {"127.0.0.1"} for unit in site.processes}


def test_nobody_hears_of_a_secret_or_a_payload_in_the_log(site: ShippedSite) -> None:
    for process in site.processes.values():
        assert process.facts(), "its log is read"
        assert CANARY not in process.output
        assert f":{PASSWORD}@" not in process.output
        assert not any(token in process.output for token in TOKENS.values())
