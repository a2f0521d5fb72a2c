"""search_outbox_log on a real PostgreSQL: what producers write there, its days, its rights, the way there and back."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from outbox.ops.doctor.event_log import event_log
from outbox.ports import Finding
from outbox.store.attach import installed
from outbox.store.attach.attach import attach
from outbox.store.doctor import PostgresDoctor
from outbox.store.event_log import PostgresEventLog
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate, status, turn_log_off
from tests.fixtures.commands import Called, call_here
from tests.fixtures.failures import open_database
from tests.fixtures.postgres import fresh_database
from tests.fixtures.roles import Roles

Connection = psycopg.Connection[Any]
SLOT = "outbox_log"
KEY = "select outbox_enqueue('article', '7', 'upsert', idempotency_key => 'k')"


@pytest.fixture(scope="module")
def log_template(postgres_url: str, migrated_template: str) -> Iterator[str]:
    with fresh_database(postgres_url, migrated_template) as url:
        assert migrate(url, log=True) == ["log"]
        yield str(conninfo_to_dict(url)["dbname"])


@pytest.fixture
def database(request: pytest.FixtureRequest, postgres_url: str, migrated_template: str) -> Iterator[str]:
    template = "log_template" if "logged" in request.fixturenames else "migrated_template"
    with fresh_database(postgres_url, request.getfixturevalue(template)) as url:
        yield url


@pytest.fixture
def logged(connection: Connection) -> Connection:
    """A database whose producers write to the log."""
    return connection


def count(conn: Connection, table: str = "search_outbox_log") -> int:
    row = conn.execute(sql.SQL("select count(*) from {}").format(sql.Identifier(table))).fetchone()
    assert row is not None
    return int(row[0])


def fanouts(conn: Connection) -> int:
    found = conn.execute("select count(*) from search_outbox_events where op = 'fanout' and entity_id = '9'").fetchone()
    assert found is not None
    return int(found[0])


def rows(conn: Connection) -> list[tuple[Any, ...]]:
    """What was written, in order of the versions."""
    found = conn.execute("select op, entity_key, payload::text, routing from search_outbox_log order by event_version")
    return found.fetchall()


def days(conn: Connection) -> list[str]:
    found = conn.execute(
        "select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid"
        " where i.inhparent = 'search_outbox_log'::regclass and c.relname ~ '\\d{8}$' order by 1"
    )
    return [name for (name,) in found]


def dropping() -> str:
    """As docs/kafka-log.md has it."""
    page = (Path(__file__).parents[2] / "docs" / "kafka-log.md").read_text("utf-8")
    return next(part for part in page.split("```") if part.startswith("sql\ndrop publication")).removeprefix("sql\n")


def make_day(conn: Connection, ago: int) -> str:
    """A partition of a day in the past, as it would have been made then."""
    made = conn.execute(
        "select 'search_outbox_log_' || to_char(d, 'YYYYMMDD'), d::text || '+00', (d + 1)::text || '+00'"
        " from (select (now() at time zone 'utc')::date - %s::int as d) as day",
        [ago],
    ).fetchone()
    assert made is not None
    name, starts, ends = made
    part = sql.SQL("create table {} partition of search_outbox_log for values from ({}) to ({})")
    conn.execute(part.format(sql.Identifier(name), sql.Literal(starts), sql.Literal(ends)))
    return str(name)


def write_ago(conn: Connection, ago: int) -> None:
    conn.execute(
        "insert into search_outbox_log (entity_type, entity_id, op, created_at)"
        " values ('article', '1', 'refresh', date_trunc('day', now() at time zone 'utc') at time zone 'utc'"
        " - make_interval(days => %s, hours => -1))",
        [ago],
    )


class TestProducers:
    def test_a_commit_writes_one_event_and_a_rollback_none(self, logged: Connection, database: str) -> None:
        with psycopg.connect(database) as producer:
            producer.execute("select outbox_enqueue('article', '1', 'upsert', '{}')")
            producer.rollback()
            producer.execute("select outbox_enqueue('article', '2', 'upsert', '{}')")
            assert count(logged) == 0
            producer.commit()
        assert rows(logged) == [("upsert", "article:2", "{}", None)]
        assert count(logged, "search_outbox_events") == 0

    def test_every_column_of_an_event_is_kept_as_it_was_given(self, logged: Connection) -> None:
        row = logged.execute(
            "select outbox_enqueue('article', '7', 'upsert', '{\"a\":  1.10, \"a\": 1e400}', version => 9,"
            " routing => 'r', idempotency_key => 'k', traceparent => 't')"
        ).fetchone()
        found = logged.execute(
            "select id, entity_type, entity_id, op, event_version, payload::text, routing, idempotency_key,"
            " traceparent, entity_key, has_payload, created_at <= now() from search_outbox_log"
        ).fetchone()
        described = logged.execute(
            "select event::jsonb = jsonb_build_array('upsert', 9, 'article', '7', 'r',"
            " (extract(epoch from created_at) * 1000000)::bigint, true, 't', xmin::text::bigint,"
            " search_outbox_database()) from search_outbox_log"
        ).fetchone()
        assert described == (True,)
        assert row is not None
        given = ("article", "7", "upsert", 9, '{"a":  1.10, "a": 1e400}', "r", "k", "t", "article:7", True, True)
        assert found == (row[0], *given)

    @pytest.mark.parametrize(
        "call",
        [
            "outbox_enqueue('article', repeat('x', 513), 'upsert')",
            "outbox_enqueue('article', '1', 'explode')",
            "outbox_enqueue('article', '1', 'upsert', '[]')",
        ],
    )
    def test_bad_input_is_refused_in_the_same_words(self, database: str, connection: Connection, call: str) -> None:
        said = []
        for _ in ("table", "log"):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(f"select {call}".encode())
            said.append((refused.value.sqlstate, refused.value.diag.message_primary, refused.value.diag.message_hint))
            migrate(database, log=True)
        assert said[0] == said[1]
        assert count(connection) == 0

    def test_a_known_key_returns_the_event_that_has_it(self, database: str, connection: Connection) -> None:
        earlier = connection.execute(KEY.replace("'k'", "'earlier'")).fetchone()
        migrate(database, log=True)
        assert connection.execute(KEY.replace("'k'", "'earlier'")).fetchone() == earlier
        first, second = connection.execute(KEY).fetchone(), connection.execute(KEY).fetchone()
        assert first == second
        assert count(connection) == 1

    def test_a_key_of_an_earlier_day_is_known_while_that_day_is_kept(self, logged: Connection) -> None:
        make_day(logged, 2)
        write_ago(logged, 2)
        logged.execute("update search_outbox_log set idempotency_key = 'k'")
        known = logged.execute("select id from search_outbox_log").fetchone()
        assert logged.execute(KEY).fetchone() == known

    def test_one_key_twice_in_one_day_is_refused_whatever_the_isolation(self, logged: Connection) -> None:
        logged.execute(KEY)
        with pytest.raises(psycopg.errors.UniqueViolation):
            logged.execute(
                "insert into search_outbox_log (entity_type, entity_id, op, idempotency_key)"
                " values ('article', '8', 'refresh', 'k')"
            )


TABLES = """
create table articles (id int primary key, title text, price numeric);
create table orders (id int primary key, total numeric, tenant text default 't');
create table comments (id int primary key, article_id int);
create view search_documents as
    select 'order'::text as entity_type, id as entity_id, to_json(o) as document, tenant as routing from orders as o;
"""


def attach_all(conn: Connection) -> None:
    attach(conn, "articles", entity_type="article", id_column="id", columns=("title",))
    attach(conn, "comments", entity_type="article", via="select changed.article_id")
    attach(conn, "orders", entity_type="order", id_column="id")


CHANGES = """
insert into articles values (1, 'x', 1.10); update articles set title = 'y'; delete from articles;
insert into comments values (1, 9); delete from comments;
insert into orders values (5, 1.10); delete from orders;
"""
# What was written to the log; fan-outs are always rows of the table, and expanded from there.
WRITTEN = [
    ("refresh", "article:1", None, None),
    ("refresh", "article:1", None, None),
    ("delete", "article:1", None, None),
    ("refresh", "order:5", None, None),
    ("delete", "order:5", None, None),
]
FANNED = 2


class TestAttached:
    def test_a_table_that_was_attached_before_is_switched_with_the_rest(
        self, database: str, connection: Connection
    ) -> None:
        connection.execute(TABLES)
        attach_all(connection)
        migrate(database, log=True)
        connection.execute(CHANGES)
        assert rows(connection) == WRITTEN
        assert fanouts(connection) == count(connection, "search_outbox_events") == FANNED
        assert [each.elsewhere for each in installed.installed(connection)] == ["", "", ""]

    def test_and_back_again(self, logged: Connection, database: str) -> None:
        logged.execute(TABLES)
        attach_all(logged)
        assert turn_log_off(database) == ["log off"]
        logged.execute(CHANGES)
        assert count(logged) == 0
        found = logged.execute(
            "select op, entity_type || ':' || entity_id, payload::text, routing from search_outbox_events"
            " where op <> 'fanout' order by seq"
        ).fetchall()
        assert found == WRITTEN
        assert fanouts(logged) == FANNED

    def test_changes_in_a_session_of_a_replica_have_their_key_too(self, logged: Connection) -> None:
        logged.execute(TABLES)
        attach_all(logged)
        logged.execute("set session_replication_role = replica")
        logged.execute("insert into orders values (5, 1.10)")
        assert rows(logged) == [WRITTEN[-2]]

    def test_a_table_that_is_attached_later_writes_to_the_log(self, logged: Connection) -> None:
        logged.execute(TABLES)
        attach_all(logged)
        logged.execute(CHANGES)
        assert rows(logged) == WRITTEN
        assert fanouts(logged) == count(logged, "search_outbox_events") == FANNED


PLAIN = (
    "insert into search_outbox_log (entity_type, entity_id, op, payload) values ('article', '1', 'upsert', %s::json)"
)
ENQUEUE = "select outbox_enqueue('article', '1', 'upsert', %s::json)"


@pytest.mark.parametrize(("log", "write"), [(False, ENQUEUE), (True, ENQUEUE), (True, PLAIN)])
def test_a_payload_above_the_limit_is_refused_where_it_is_written(
    database: str, connection: Connection, log: bool, write: str
) -> None:
    """One event of the log that no record can hold would stop the connector for everybody."""
    said: list[str] = []
    migrate(database, log=log)
    migrate(database, most_bytes=70_000, say=said.append)
    assert said == ["outbox_enqueue takes payloads of up to 70,000 bytes"]
    fits = json.dumps({"a": "é" * 34_995 + "x"}, ensure_ascii=False)
    assert len(fits.encode()) == 70_000
    connection.execute(write.encode(), [fits])
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="payload has 70001 bytes, 70000 at most") as refused:
        connection.execute(write.encode(), [fits + " "])
    assert "OUTBOX_MAX_DOCUMENT_BYTES" in str(refused.value.diag.message_hint)
    migrate(database, most_bytes=80_000)
    connection.execute(write.encode(), [fits + " "])
    assert count(connection, "search_outbox_log" if log else "search_outbox_events") == 2


class TestDays:
    def test_days_are_made_beside_producers_whose_transactions_are_open(
        self, logged: Connection, pool: Database, database: str
    ) -> None:
        gone = days(logged)[-1]
        logged.execute(sql.SQL("drop table {}").format(sql.Identifier(gone)))
        with psycopg.connect(database) as producer:
            producer.execute("select outbox_refresh('article', '1')")
            PostgresEventLog(pool, forget=False).keep(timedelta(days=3), 500)
            assert days(logged)[-1] == gone

    def test_a_day_that_has_rows_in_the_default_partition_stays_there(self, logged: Connection, pool: Database) -> None:
        today = days(logged)[0]
        logged.execute(sql.SQL("drop table {}").format(sql.Identifier(today)))
        logged.execute("select outbox_refresh('article', '1')")
        PostgresEventLog(pool, forget=False).keep(timedelta(days=3), 500)
        assert today not in days(logged)
        logged.execute("select outbox_refresh('article', '2')")
        assert count(logged, "search_outbox_log_default") == 2

    def test_days_that_are_over_are_dropped_and_younger_ones_kept(self, logged: Connection, pool: Database) -> None:
        old, young = make_day(logged, 5), make_day(logged, 3)
        for ago in (5, 3, 0, 400):
            write_ago(logged, ago)
        assert PostgresEventLog(pool, forget=True).keep(timedelta(days=3), 500) == 2
        assert old not in days(logged)
        assert young in days(logged)
        assert (count(logged), count(logged, "search_outbox_log_default")) == (2, 0)

    def test_a_day_that_a_producer_holds_is_emptied_now_and_dropped_later(
        self, logged: Connection, pool: Database, database: str
    ) -> None:
        old = make_day(logged, 5)
        write_ago(logged, 5)
        store = PostgresEventLog(pool, forget=True)
        with psycopg.connect(database) as producer:
            producer.execute("select outbox_refresh('article', '1')")
            assert store.keep(timedelta(days=3), 500) == 0
            assert (old in days(logged), count(logged, old)) == (True, 0)
            with psycopg.connect(database) as other:  # nobody has to wait for what waits
                other.execute("select outbox_refresh('article', '2')")
        assert store.keep(timedelta(days=3), 500) == 1
        assert old not in days(logged)
        assert count(logged) == 2


class TestRights:
    @pytest.fixture
    def granted(self, roles: Roles, database: str) -> Roles:
        migrate(database, log=True)
        return roles

    def test_a_producer_writes_and_reads_nothing_back(self, granted: Roles, connection: Connection) -> None:
        with granted.connect("producer") as producer:
            assert producer.execute(KEY).fetchone() == producer.execute(KEY).fetchone()
            producer.execute("select outbox_refresh('article', '1')")
            for act in (
                "select payload from search_outbox_log",
                "update search_outbox_log set op = 'delete'",
                "delete from search_outbox_log",
                "truncate search_outbox_log",
                "select search_outbox_log_days(7)",
                "select search_outbox_log_prune('0', 1)",
                "select search_outbox_log_off()",
                "insert into search_outbox_log (entity_type, entity_id, op, entity_key) values ('a', '1', 'x', 'b')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    producer.execute(act.encode())
        assert count(connection) == 2

    def test_a_projector_keeps_the_days(self, granted: Roles, connection: Connection) -> None:
        old = make_day(connection, 5)
        with open_database(granted.url("projector"), size=1) as opened:
            assert PostgresEventLog(opened, forget=True).keep(timedelta(days=3), 500) == 1
        assert old not in days(connection)
        with granted.connect("projector") as projector, pytest.raises(psycopg.errors.InsufficientPrivilege):
            projector.execute("delete from search_outbox_log")


class TestThereAndBack:
    def test_off_and_on_again_keeps_what_is_in_the_log(self, logged: Connection, database: str) -> None:
        logged.execute("select outbox_refresh('article', '1')")
        original = logged.execute("select prosrc from pg_proc where proname = 'search_outbox_enqueue_table'").fetchone()
        assert turn_log_off(database) == ["log off"]
        assert turn_log_off(database) == []
        restored = logged.execute("select prosrc from pg_proc where proname = 'outbox_enqueue'").fetchone()
        assert original is not None
        assert restored == (original[0].replace("search_outbox_enqueue_table", "outbox_enqueue"),)
        logged.execute("select outbox_refresh('article', '2')")
        assert (count(logged), count(logged, "search_outbox_events")) == (1, 1)
        assert not status(database).parts["log"]
        assert migrate(database, log=True) == ["log"]
        logged.execute("select outbox_refresh('article', '3')")
        assert (count(logged), count(logged, "search_outbox_events")) == (2, 1)

    def test_the_functions_are_the_same_after_the_way_there_and_back(
        self, database: str, connection: Connection
    ) -> None:
        connection.execute(TABLES)
        attach_all(connection)
        ours = (
            "select proname, pg_get_functiondef(oid), proacl::text, proowner from pg_proc"
            " where pronamespace = 'public'::regnamespace order by 1, 2"
        )
        before = connection.execute(ours).fetchall()
        migrate(database, log=True)
        turn_log_off(database)
        connection.execute(dropping().encode())
        assert connection.execute(ours).fetchall() == before

    def test_a_prepared_statement_of_an_open_session_follows_the_switch(
        self, database: str, connection: Connection
    ) -> None:
        connection.execute("prepare send as select outbox_enqueue('article', '1', 'upsert')")
        connection.execute("prepare again as select outbox_refresh('article', '1')")
        for _ in range(7):  # a generic plan by then
            connection.execute("execute send")
            connection.execute("execute again")
        migrate(database, log=True)
        connection.execute("execute send")
        connection.execute("execute again")
        assert (count(connection), count(connection, "search_outbox_events")) == (2, 14)


def findings(pool: Database, database: str) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in event_log(PostgresDoctor(pool, "search_documents", database).event_log(SLOT), SLOT, 3):
        found.setdefault(finding.name, []).append(finding)
    return found


class TestDoctor:
    def test_without_the_log_nothing_is_said(self, pool: Database, database: str) -> None:
        assert findings(pool, database) == {}

    def test_faults_are_found(self, logged: Connection, pool: Database, database: str) -> None:
        write_ago(logged, 400)
        make_day(logged, 40)
        for name in days(logged)[2:]:
            logged.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
        logged.execute("drop publication outbox_log")
        told = " ".join(finding.detail for finding in findings(pool, database)["event_log"])
        for words in ("publication outbox_log is missing", "0 days ahead", "rows (1)", "40 days old"):
            assert words in told


class TestCommands:
    @pytest.fixture
    def run(
        self, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> Callable[..., Called]:
        monkeypatch.setenv("DATABASE_URL", database)
        return lambda *args: call_here(args, capsys)

    def test_the_log_is_installed_and_turned_off(self, run: Callable[..., Called]) -> None:
        assert "log" in run("migrate", "plan", "--log").out
        assert run("migrate", "--log").out == "applied 1: log\n"
        assert run("migrate", "--log").out == "nothing to do\n"
        assert ["log", "yes"] in [line.split() for line in run("migrate", "status").out.splitlines()]
        off = run("migrate", "--no-log")
        assert (off.code, off.out) == (0, "applied 1: log off\n")
        assert "docs/kafka-log.md" in off.err

    def test_the_configuration_is_printed_without_the_password(self, run: Callable[..., Called], database: str) -> None:
        printed = run("kafka", "connector", "--user", "outbox_connector", "--topic", "t")
        password = urlsplit(database).password
        assert printed.json["database.dbname"] == urlsplit(database).path.removeprefix("/")
        assert printed.json["transforms.outbox.route.topic.replacement"] == "t"
        assert password
        assert password not in printed.out + run("kafka", "connector", "--properties").out


class TestPublication:
    def test_it_publishes_inserts_by_way_of_the_partitioned_table(self, logged: Connection) -> None:
        found = logged.execute(
            "select pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from pg_publication"
            " where pubname = 'outbox_log'"
        ).fetchone()
        assert found == (True, False, False, False, True)
        tables = logged.execute("select tablename from pg_publication_tables where pubname = 'outbox_log'").fetchall()
        assert tables == [("search_outbox_log",)]
