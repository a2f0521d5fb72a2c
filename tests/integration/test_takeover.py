"""What release 0.1.0 attached becomes rows of ours, and its queries run after the commit once the upgrade is over."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox.store.attach.attach import attach, detach
from outbox.store.attach.installed import installed
from outbox.store.attach.tables import CannotAttach
from outbox.store.schema.migrate import back, finish, migrate

TABLES = """
create table authors (id int primary key, name text);
create table articles (id int primary key, author_id int);
create table comments (id int primary key, article_id int);
insert into authors values (1, 'Ada');
insert into articles values (10, 1), (11, 1);
"""
BY_0_1_0 = (Path(__file__).parents[1] / "fixtures" / "sql" / "attached_by_0_1_0.sql").read_text(encoding="utf-8")
QUERY = "select id from articles where author_id = changed.id and 'a' <> 'b'"
Connection = psycopg.Connection[Any]


@pytest.fixture
def older(connection: Connection) -> Connection:
    connection.execute(TABLES)
    connection.execute(BY_0_1_0.encode())
    connection.execute("alter table search_outbox_leases alter column revision drop not null")
    return connection


def written(conn: Connection, statement: str) -> list[tuple[str, str]]:
    conn.execute("delete from search_outbox_events")
    conn.execute(statement.encode())
    rows = conn.execute("select op, entity_id from search_outbox_events order by seq").fetchall()
    return [(op, id) for op, id in rows]


def test_each_step_of_the_upgrade_keeps_every_change(older: Connection, database: str) -> None:
    said: list[str] = []
    migrate(database, say=said.append)
    assert [(each.attachment.table, each.number is not None, each.in_transaction) for each in installed(older)] == [
        ("public.authors", True, True),
        ("public.comments", True, False),
    ]
    assert "public.authors is attached as article via" in "\n".join(said)
    assert written(older, "update authors set name = 'x'") == [("refresh", "10"), ("refresh", "11")]
    with pytest.raises(CannotAttach, match="outbox migrate --finish"):
        attach(older, "authors", entity_type="article", via="select changed.id")
    finish(database, "search_documents")
    assert [each.in_transaction for each in installed(older)] == [False, False]
    assert written(older, "update authors set name = 'y'") == [("fanout", "1")]
    assert written(older, "insert into comments values (1, 10)") == [("refresh", "10")]
    said.clear()
    migrate(database, say=said.append)
    assert said == []
    detach(older, "authors")
    detach(older, "comments")
    assert installed(older) == []
    left = "select count(*) from pg_proc where proname like 'search\\_outbox\\_capture%'"
    assert older.execute(left).fetchone() == (0,)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (QUERY.replace("'", "''"), "select id from articles"),
        (QUERY.replace("'", "''"), "select 1; delete from search_outbox_events; commit"),
        ('"type": "article"', '"type": "other"'),
        ('{"type"', "[1"),
    ],
    ids=["another query", "two statements", "another type", "no json"],
)
def test_arguments_that_say_other_than_the_function_are_not_taken_over(
    connection: Connection, database: str, was: str, becomes: str
) -> None:
    connection.execute(TABLES)
    triggers = BY_0_1_0.index("CREATE TRIGGER")
    connection.execute((BY_0_1_0[:triggers] + BY_0_1_0[triggers:].replace(was, becomes)).encode())
    said: list[str] = []
    migrate(database, say=said.append)
    assert "public.authors has triggers that none of our functions explains: attach it anew" in said
    assert [each.attachment.table for each in installed(connection) if each.attachment.via and each.number] == []


def test_a_function_of_another_role_is_not_taken_over(connection: Connection, database: str) -> None:
    """It may say in its body whatever its owner likes."""
    connection.execute(TABLES)
    connection.execute(BY_0_1_0.encode())
    connection.execute("create role takeover_stranger")
    try:
        name = "select oid::regprocedure::text from pg_proc where proname like 'search\\_outbox\\_capture\\_authors%'"
        (function,) = connection.execute(name).fetchone() or ("",)
        connection.execute(f"alter function {function} owner to takeover_stranger".encode())
        migrate(database)
        assert [each.attachment.table for each in installed(connection) if each.number] == ["public.comments"]
    finally:
        connection.execute("drop owned by takeover_stranger cascade; drop role takeover_stranger")


def test_the_way_back_is_refused_while_queries_are_attached_or_fanouts_are_open(
    older: Connection, database: str
) -> None:
    migrate(database)
    finish(database, "search_documents")
    *newer, undo = (step.partition("\n")[2] for step in back(16).split("-- Takes back ")[1:])
    for step in newer:
        older.execute(step.encode())
    older.execute("update authors set name = 'z'")
    with pytest.raises(psycopg.errors.RaiseException, match="attached by a query"):
        older.execute(undo.encode())
    older.execute("rollback")
    detach(older, "authors")
    with pytest.raises(psycopg.errors.RaiseException, match="fan-outs are open"):
        older.execute(undo.encode())
    older.execute("rollback")
    older.execute("update search_outbox_events set status = 'done' where op = 'fanout'")
    older.execute(undo.encode())
    assert older.execute("select to_regclass('search_outbox_attachments') is null").fetchone() == (True,)
