"""Applying the schema: once, twice at once, from any state, and back by hand."""

import re
import subprocess
import threading
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from labs.addresses import with_words
from outbox.errors import SchemaMismatch
from outbox.store.schema import files
from outbox.store.schema import migrate as migrating
from outbox.store.schema.migrate import migrate, plan, status
from outbox.store.schema.state import check_schema
from tests.fixtures.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
EVERY_NAME = [migration.name for migration in files.numbered()]
TABLES = {
    "search_outbox_attempts",
    "search_outbox_audit",
    "search_outbox_audit_pruned",
    "search_outbox_backfills",
    "search_outbox_controls",
    "search_outbox_entity_types",
    "search_outbox_events",
    "search_outbox_leases",
    "search_outbox_migrations",
    "search_outbox_places",
    "search_outbox_quotas",
    "search_outbox_rebuild_parts",
    "search_outbox_rebuilds",
    "search_outbox_replay_items",
    "search_outbox_replays",
    "search_outbox_rollup",
    "search_outbox_types_revision",
    "search_outbox_verifications",
    "search_outbox_webhook_deliveries",
    "search_outbox_workers",
}

OPEN = "((processed_at IS NULL) AND (failed_at IS NULL)"
FRESH = f"WHERE {OPEN} AND (next_retry_at IS NULL) AND (abandoned_count = 0))"
DUE = f"WHERE {OPEN} AND (next_retry_at IS NOT NULL) AND (abandoned_count = 0))"
# The twins say it otherwise on purpose: so a claim by type can use no other index.
TYPE_FRESH, TYPE_DUE = (where.replace("abandoned_count = 0", "abandoned_count < 1") for where in (FRESH, DUE))
INDEXES = {
    "search_outbox_events_pkey": "(id) WITH (fillfactor='60')",
    "search_outbox_events_fresh_idx": f"(seq) {FRESH}",
    "search_outbox_events_retry_idx": f"(next_retry_at) {DUE}",
    "search_outbox_events_suspect_idx": f"(abandoned_count, seq) WHERE {OPEN} AND (abandoned_count > 0))",
    "search_outbox_events_failed_idx": "(failed_at) WHERE (failed_at IS NOT NULL)",
    "search_outbox_events_processed_idx": "(processed_at) WHERE (processed_at IS NOT NULL)",
    "search_outbox_events_delete_hash_idx": (
        "(hashtextextended(entity_id, (0)::bigint), event_version) WHERE (op = 'delete'::text)"
    ),
    "search_outbox_events_failed_id_idx": "(entity_id) WHERE (failed_at IS NOT NULL)",
    "search_outbox_events_idempotency_idx": "(idempotency_key) WHERE (idempotency_key IS NOT NULL)",
}
PART_INDEXES = {
    "search_outbox_events_type_fresh_idx": f"(entity_type, seq) {TYPE_FRESH}",
    "search_outbox_events_type_retry_idx": f"(entity_type, next_retry_at) {TYPE_DUE}",
    "search_outbox_events_entity_idx": "(entity_type, entity_id, event_version)",
}


def ours(conn: psycopg.Connection) -> set[str]:
    """Every table, view, sequence and function of ours, by name."""
    rows = conn.execute(
        "select relname::text from pg_class where relkind in ('r', 'S', 'v') and relname like 'search\\_outbox%'"
        " union select proname::text from pg_proc where proname like any (array['search\\_outbox%', 'outbox\\_%'])"
    ).fetchall()
    return {name for (name,) in rows}


def tables(conn: psycopg.Connection) -> set[str]:
    return {name for (name,) in conn.execute("select tablename from pg_tables where schemaname = 'public'")}


def event_indexes(conn: psycopg.Connection) -> dict[str, str]:
    query = "select indexname, indexdef from pg_indexes where tablename = 'search_outbox_events'"
    return {name: re.split(" USING (?:btree|hash) ", ddl)[1] for name, ddl in conn.execute(query)}


def test_every_index_is_in_the_map_of_the_readme_and_none_uses_a_column_that_a_claim_writes(
    database: str, connection: psycopg.Connection
) -> None:
    migrate(database, by_type=True, by_entity=True, notify=True, log=True)
    readme = (ROOT / "sql" / "README.md").read_text("utf-8")
    named = "select indexname from pg_indexes where schemaname = 'public' and indexname like '%_idx'"
    names = [name.removeprefix("search_outbox_").removeprefix("events_") for (name,) in connection.execute(named)]
    assert [name for name in names if name not in readme] == []
    assert status(database).slow_indexes == ()


def test_two_migrates_at_once_apply_every_migration_once(empty_database: str) -> None:
    applied: list[list[str]] = []
    together = threading.Barrier(2)

    def run() -> None:
        together.wait(PATIENCE_SECONDS)
        applied.append(migrate(empty_database, by_type=True))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(applied, key=len) == [[], [*EVERY_NAME, "by_type"]]


def test_the_owner_of_the_database_can_migrate_without_being_superuser(empty_database: str, postgres_url: str) -> None:
    name = conninfo_to_dict(empty_database)["dbname"]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create role owner_of_{name} login nosuperuser password 'x'".encode())
        admin.execute(f"alter database {name} owner to owner_of_{name}".encode())
        try:
            url = urlsplit(empty_database)
            migrate(url._replace(netloc=f"owner_of_{name}:x@{url.netloc.rpartition('@')[2]}").geturl(), notify=True)
        finally:
            admin.execute(f"drop database {name} with (force)".encode())
            admin.execute(f"drop role owner_of_{name}".encode())


def test_the_tables_may_live_in_a_schema_of_their_own(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as conn:
        conn.execute("create schema app")
    migrate(with_words(empty_database, "options=-csearch_path%3Dapp"), by_type=True)
    with psycopg.connect(empty_database, autocommit=True) as conn:
        assert tables(conn) == set()
        conn.execute("select app.outbox_enqueue('article', '1', 'upsert')")
        conn.execute("update app.search_outbox_events set status = 'failed'")
        row = conn.execute("select failed_at is not null from app.search_outbox_events").fetchone()
        assert row == (True,)


def test_notify_wakes_a_listener_once_a_statement(database: str) -> None:
    migrate(database, notify=True)
    with psycopg.connect(database, autocommit=True) as listener, psycopg.connect(database) as producer:
        listener.execute("listen search_outbox")
        producer.execute(
            "insert into search_outbox_events (entity_type, entity_id, op)"
            " select 'block', n::text, 'upsert' from generate_series(1, 100) as n"
        )
        producer.commit()
        woken = list(listener.notifies(timeout=PATIENCE_SECONDS, stop_after=1))
    assert [(notice.channel, notice.payload) for notice in woken] == [("search_outbox", "")]


MISFITS = [
    ("delete from search_outbox_migrations where number = {latest}", "too_old", "outbox migrate"),
    ("insert into search_outbox_migrations (name, number, checksum) values ('9999_x', 9999, '')", "too_new", "newer"),
    ("update search_outbox_migrations set checksum = 'other' where number = 2", "changed", "0002_events"),
]


@pytest.mark.parametrize(("change", "state", "remedy"), MISFITS, ids=[row[1] for row in MISFITS])
def test_a_schema_that_does_not_fit_names_what_helps(
    connection: psycopg.Connection, change: str, state: str, remedy: str
) -> None:
    connection.execute(change.format(latest=files.latest()).encode())
    schema = check_schema(connection)
    assert schema.state == state
    assert not schema.ok
    assert remedy in str(schema)


@pytest.mark.parametrize("change", [row[0] for row in MISFITS[1:]], ids=["too_new", "changed"])
def test_migrate_leaves_the_schema_of_another_release_alone(
    database: str, connection: psycopg.Connection, change: str
) -> None:
    connection.execute(change.encode())
    before = connection.execute("select * from search_outbox_migrations order by 1").fetchall()
    with pytest.raises(SchemaMismatch):
        migrate(database, by_type=True)
    assert connection.execute("select * from search_outbox_migrations order by 1").fetchall() == before


def test_plan_says_what_would_be_done_and_why_and_does_nothing(empty_database: str) -> None:
    steps = plan(empty_database, by_type=True)
    assert [step.name for step in steps] == [*EVERY_NAME, "by_type"]
    assert all(step.why and not step.adopts for step in steps)
    with psycopg.connect(empty_database) as conn:
        assert ours(conn) == set()


def test_the_printed_script_makes_the_same_schema(empty_database: str, tmp_path: Path) -> None:
    script = tmp_path / "schema.sql"
    script.write_text(migrating.script(by_type=True, by_entity=True, notify=True, log=True))
    address = urlsplit(empty_database)._replace(query="").geturl()  # psql 15 does not know require_auth
    command = ["psql", address, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    # PostgreSQL's own remark on the publication: this server's write-ahead log is not decoded.
    remarks = [line for line in done.stderr.splitlines() if "wal_level" not in line]
    assert (done.returncode, remarks) == (0, [])
    with psycopg.connect(empty_database, autocommit=True) as conn:
        assert check_schema(conn).ok
        assert tables(conn) >= TABLES
        assert event_indexes(conn).items() >= (INDEXES | PART_INDEXES).items()
    assert migrate(empty_database, by_type=True, by_entity=True, notify=True, log=True) == []


def test_an_index_whose_build_was_broken_off_is_built_again(database: str, connection: psycopg.Connection) -> None:
    connection.execute("drop index search_outbox_events_idempotency_idx")
    connection.execute("delete from search_outbox_migrations where name = '0005_event_indexes'")
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, idempotency_key)"
        " select 'block', n::text, 'upsert', 'same' from generate_series(1, 2) as n"
    )
    with pytest.raises(psycopg.errors.UniqueViolation):
        migrate(database)
    connection.execute("update search_outbox_events set idempotency_key = entity_id")
    assert migrate(database) == ["0005_event_indexes"]
    valid = connection.execute(
        "select bool_and(indisvalid) from pg_index where indrelid = 'search_outbox_events'::regclass"
    )
    assert valid.fetchone() == (True,)


def fill(conn: psycopg.Connection) -> None:
    conn.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, status, idempotency_key)"
        " select 'block', n::text, 'upsert', (array['pending', 'done', 'failed', 'discarded'])[1 + n % 4], n::text"
        " from generate_series(1, 2000) as n"
    )
    conn.execute("insert into search_outbox_attempts (event_id, attempt) select id, 1 from search_outbox_events")
    conn.execute("insert into search_outbox_rollup values (now(), 'minute', 'block', 'done', '', 1)")


def test_every_undo_works_by_hand_on_a_filled_table_and_leaves_nothing(
    database: str, connection: psycopg.Connection
) -> None:
    migrate(database, by_type=True, by_entity=True, notify=True, log=True)
    fill(connection)
    everything = [*files.numbered(), *map(files.part, files.PARTS)]
    for migration in reversed(everything):
        assert migration.undo(), f"{migration.name} does not say how to undo it"
        connection.execute(migration.undo().encode())
    assert ours(connection) == set()


def test_a_migrate_that_dies_after_any_step_is_finished_by_the_next(empty_database: str) -> None:
    class Killed(Exception):
        pass

    def die_at_the_second(said: list[str], line: str) -> None:
        said.append(line)
        if len(said) == 2:
            raise Killed

    for _ in EVERY_NAME[1:]:
        with pytest.raises(Killed):
            migrate(empty_database, say=partial(die_at_the_second, []))
    assert migrate(empty_database) == EVERY_NAME[-1:]
    assert status(empty_database).schema.ok


def test_the_session_ignores_the_time_limits_of_its_role(database: str) -> None:
    with migrating.migration_connection(database) as conn:
        limits = conn.execute("select current_setting('statement_timeout'), current_setting('lock_timeout')")
        assert limits.fetchone() == ("0", "0")
