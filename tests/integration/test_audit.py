"""The audit on real PostgreSQL: insert-only, chained a statement at a time, pruned with its hashes kept, verified."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox.ops.audit import AuditDesk
from outbox.policy.audit import Action, Actor, Entry, Source
from outbox.policy.inputs import AuditFilter
from outbox.store import audit as store
from outbox.store.audit import PostgresAudit
from outbox.store.pool import Database
from outbox.store.schema import files
from outbox.store.schema.migrate import migrate
from tests.fixtures.audits import age_audit, tamper
from tests.fixtures.failures import ALICE, BOB, audit_counts, open_database
from tests.fixtures.waiting import PATIENCE_SECONDS

NASTY = ["=cmd()", "+1", "-1", "@SUM(A1)", "\uff1dx", "plain", "with,comma", 'with "quotes"']


ABOVE_THE_HEAD = (
    "insert into search_outbox_audit (id, action, actor, source, prev_hash, hash)"
    " select 11, action, 'mallory', source, prev_hash, hash from search_outbox_audit where id = 10"
)
# A forger who knows how a hash is made, but would have to change every row after it too.
FORGED_HASH = (
    "update search_outbox_audit set actor = 'mallory' where id = 5;"
    "update search_outbox_audit a set hash = sha256(prev_hash || convert_to(search_outbox_audit_text(a), 'UTF8'))"
    " where id = 5"
)


@pytest.fixture
def pool(database: str) -> Iterator[Database]:
    with open_database(database, size=8) as opened:
        yield opened


@pytest.fixture
def desk(pool: Database) -> AuditDesk:
    return AuditDesk(PostgresAudit(pool), rows_a_step=7, pause=lambda _: None)


def fill(pool: Database, n: int, actor: Actor = ALICE, **about: object) -> None:
    entries = [
        Entry(Action.REPLAY_BATCH_ITEM, actor, "why", entity_type="block", entity_id=str(i), **about)  # type: ignore[arg-type]
        for i in range(n)
    ]
    PostgresAudit(pool).write(entries)


@pytest.mark.parametrize(
    "statement",
    [
        "update search_outbox_audit set actor = 'mallory'",
        "delete from search_outbox_audit",
        "truncate search_outbox_audit",
        "update search_outbox_audit set hash = null where id = 1",
    ],
)
def test_rows_cannot_be_changed_or_removed(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk, statement: str
) -> None:
    fill(pool, 3)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="takes INSERT only"):
        connection.execute(statement.encode())
    connection.execute("set session_replication_role = replica")  # what ordinary triggers would not see
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        connection.execute(statement.encode())
    assert desk.verify().ok


def test_no_setting_of_the_session_chooses_an_id_or_the_hash_before(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk
) -> None:
    """A row's own expression is evaluated between the trigger of the statement and that of the row."""
    fill(pool, 2)
    chosen = f"999:{'00' * 32}"
    connection.execute(
        "insert into search_outbox_audit (action, actor, source, reason)"
        " select 'PAUSED', 'mallory', 'cli', set_config('search_outbox.chain', %s, true) from generate_series(1, 3)",
        [chosen],
    )
    ids = connection.execute("select array_agg(id order by id) from search_outbox_audit").fetchone()
    assert ids == ([1, 2, 3, 4, 5],)
    found = desk.verify()
    assert (found.ok, found.head) == (True, 5)


def test_writers_at_once_make_one_chain_without_gaps(pool: Database, desk: AuditDesk) -> None:
    threads = [threading.Thread(target=fill, args=(pool, 20, Actor(f"w{n}", Source.API))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    found = desk.verify()
    assert found.ok, found
    assert found.head == 120


def test_an_act_that_is_rolled_back_leaves_no_row_and_no_gap(pool: Database, desk: AuditDesk) -> None:
    fill(pool, 2)
    with pool.transaction() as connection:
        store.write(connection, [Entry(Action.PAUSED, ALICE)])
        connection.execute("savepoint before_more")
        store.write(connection, [Entry(Action.RESUMED, ALICE)])
        connection.execute("rollback to savepoint before_more")
    fill(pool, 1)
    found = desk.verify()
    assert (found.ok, found.head) == (True, 4)


@pytest.mark.parametrize(
    ("statement", "row", "word"),
    [
        ("update search_outbox_audit set actor = 'mallory' where id = 5", 5, "changed"),
        ("delete from search_outbox_audit where id = 5", 5, "removed"),
        ("delete from search_outbox_audit where id >= 9", 9, "removed"),
        (ABOVE_THE_HEAD, 11, "changed"),
        (FORGED_HASH, 6, "follow"),
    ],
)
def test_verify_finds_a_changed_a_removed_and_an_inserted_row(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk, statement: str, row: int, word: str
) -> None:
    fill(pool, 10, detail={"a": 1})
    assert desk.verify().ok
    for each in statement.split(";"):
        tamper(connection, each)
    found = desk.verify()
    assert not found.ok
    assert found.findings[0].id == row
    assert word in found.findings[0].what


def test_verify_holds_across_filtered_prunes_and_still_finds_what_is_wrong(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk
) -> None:
    fill(pool, 20)
    fill(pool, 20, BOB)
    age_audit(connection)
    pruned = desk.prune(AuditFilter(actor="alice"), 7, BOB)
    assert pruned.removed == 20
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 20, "AUDIT_PRUNE_SUMMARY": 3}
    desk.prune(AuditFilter(entity_id="7"), 7, BOB)
    assert desk.verify().ok
    tamper(connection, "delete from search_outbox_audit where id = 30")
    assert desk.verify().findings[0][0] == 30


def test_a_row_in_a_pruned_place_is_found(connection: psycopg.Connection, pool: Database, desk: AuditDesk) -> None:
    fill(pool, 5)
    age_audit(connection)
    desk.prune(AuditFilter(), 7, ALICE)
    tamper(
        connection,
        "insert into search_outbox_audit (id, action, actor, source, prev_hash, hash)"
        " select 3, 'PAUSED', 'mallory', 'cli', 'x', hash from search_outbox_audit_pruned",
    )
    (finding,) = desk.verify().findings
    assert (finding.id, finding.what[:8]) == (3, "inserted")


def pruned_runs(connection: psycopg.Connection) -> list[tuple[int, int]]:
    return connection.execute("select coalesce(since, id), id from search_outbox_audit_pruned order by 1").fetchall()


def test_what_prunes_leave_behind_is_bounded_by_what_is_there(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk
) -> None:
    """A hash for each row that was ever pruned grew for ever: of a run the last one is enough."""
    fill(pool, 5)
    fill(pool, 5, BOB)
    fill(pool, 5)
    age_audit(connection)
    desk.prune(AuditFilter(actor="alice"), 7, BOB)
    assert pruned_runs(connection) == [(1, 5), (11, 15)]
    assert desk.verify().ok
    age_audit(connection)
    desk.prune(AuditFilter(), 7, BOB)
    assert pruned_runs(connection) == [(1, 17)], "the summaries of the first prune are pruned too"
    assert desk.verify().ok
    tamper(connection, "update search_outbox_audit_pruned set since = 2")
    assert [finding.id for finding in desk.verify().findings] == [1]


def test_a_kill_between_two_steps_leaves_every_removal_written_down(
    database: str, connection: psycopg.Connection, pool: Database
) -> None:
    """And one within a step leaves the step undone: removal and summary are one transaction of the database's own."""
    fill(pool, 30)
    age_audit(connection)

    def killed(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        AuditDesk(PostgresAudit(pool), rows_a_step=7, pause=killed).prune(AuditFilter(), 7, ALICE)
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 23, "AUDIT_PRUNE_SUMMARY": 1}
    with psycopg.connect(database) as other:
        assert other.execute("select removed from search_outbox_audit_prune(now(), 0, 99, 99)").fetchone() == (23,)
        connection.execute("select pg_terminate_backend(%s)", [other.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            other.execute("select 1")
        other.close()
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 23, "AUDIT_PRUNE_SUMMARY": 1}
    assert AuditDesk(PostgresAudit(pool)).verify().ok


def test_an_archive_holds_every_row_before_the_first_one_goes(
    pool: Database, desk: AuditDesk, tmp_path: Path, connection: psycopg.Connection
) -> None:
    fill(pool, 12)
    age_audit(connection)
    file = tmp_path / "audit.ndjson"

    def archive(pieces: object) -> None:
        file.write_text("".join(pieces))  # type: ignore[arg-type]
        assert connection.execute("select count(*) from search_outbox_audit").fetchone() == (12,)

    desk.prune(AuditFilter(), 7, ALICE, archive=archive)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["entity_id"] for row in kept] == [str(n) for n in range(12)]
    assert all(len(row["hash"]) == 64 for row in kept)


def test_csv_neutralises_formulas_and_json_stays_lossless(pool: Database, desk: AuditDesk) -> None:
    detail = {"big": 12345678901234567890, "text": "line\nbreak"}
    PostgresAudit(pool).write([Entry(Action.EVENT_DISCARDED, ALICE, text, detail=detail) for text in NASTY])
    rows = list(csv.DictReader(io.StringIO("".join(desk.export(AuditFilter(), "csv", ALICE)))))
    assert [row["reason"] for row in rows] == [
        "'=cmd()", "'+1", "'-1", "'@SUM(A1)", "'\uff1dx", "plain", "with,comma", 'with "quotes"'
    ]  # fmt: skip
    lines = "".join(desk.export(AuditFilter(), "ndjson", ALICE)).splitlines()
    whole = json.loads("".join(desk.export(AuditFilter(), "json", ALICE)))
    for read in ([json.loads(line) for line in lines], whole):
        assert [row["reason"] for row in read[: len(NASTY)]] == NASTY
        assert read[0]["detail"] == detail
    assert "12345678901234567890" in lines[0]


def test_rows_from_before_the_login_was_kept_still_verify(
    database: str, connection: psycopg.Connection[Any], pool: Database, desk: AuditDesk
) -> None:
    newest = [each for each in files.numbered() if (each.number or 0) >= 20]
    for migration in reversed(newest):
        connection.execute(migration.undo().encode())
    fill(pool, 3)
    assert migrate(database) == [each.name for each in newest]
    fill(pool, 2)
    assert [bool(row.login) for row in desk.page(AuditFilter(), None, 10).rows] == [True, True, False, False, False]
    assert list(desk.verify().findings) == []
    connection.execute("alter table search_outbox_audit disable trigger all")
    connection.execute("update search_outbox_audit set login = 'another' where id in (2, 5)")
    assert [finding.id for finding in desk.verify().findings] == [2, 5]


def test_an_insert_cannot_choose_its_id_its_time_or_its_place_in_the_chain(
    connection: psycopg.Connection, pool: Database, desk: AuditDesk
) -> None:
    fill(pool, 2)
    connection.execute(
        "insert into search_outbox_audit (id, at, action, actor, source, prev_hash, hash)"
        " values (99, '2000-01-01', 'PAUSED', 'mallory', 'cli', 'x', 'y')"
    )
    row = connection.execute(
        "select id, at > now() - interval '1 minute' from search_outbox_audit where actor = 'mallory'"
    )
    assert row.fetchone() == (3, True)
    assert desk.verify().ok
