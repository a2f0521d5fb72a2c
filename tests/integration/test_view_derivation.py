"""What is derived from a view: for each way of joining, the attachments; and what is refused, by name."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from outbox.policy.derive.derivation import Derivation, derive
from outbox.store.attach.view_reads import read_catalogue

Connection = psycopg.Connection[Any]
TABLES = """
create table users (id int primary key, name text, boss int, seen timestamptz);
create table posts (id bigint primary key, user_id int not null, title text, ref text, ids int[], note json);
create table likes (post_id bigint not null, user_id int, primary key (post_id));
create table marks (post_id bigint, user_id int not null, n int);
create function of_posts(bigint) returns bigint stable language sql return (select count(*) from posts where id = $1);
create function pure(bigint) returns bigint immutable language plpgsql as 'begin return $1; end';
create function rows_of() returns setof posts stable language sql begin atomic select * from posts; end;
create materialized view kept as select * from users;
create foreign data wrapper files; create server files foreign data wrapper files;
create foreign table far (id int) server files;
create view named as select p.*, u.name from posts p join users u on u.id = p.user_id;
"""
OWN = "posts: by id"

DERIVED: list[tuple[str, str, set[str]]] = [
    (
        "a parent by a foreign key",
        "posts p join users u on u.id = p.user_id",
        {OWN, "users: select posts.id from posts where posts.user_id = changed.id"},
    ),
    (
        "two hops end at the column that is the id",
        "posts p join likes l on l.post_id = p.id join users u on u.id = l.user_id",
        {OWN, "likes: by post_id", "users: select likes.post_id from likes where likes.user_id = changed.id"},
    ),
    (
        "a condition after an outer join makes it an inner one",
        "posts p left join (users u join marks m on m.user_id = u.id) on false where m.post_id = p.id",
        {OWN, "marks: by post_id", "users: select marks.post_id from marks where marks.user_id = changed.id"},
    ),
    (
        "NOT IN, where no side can be null",
        "posts p where p.user_id not in (select m.user_id from marks m)",
        {OWN, "marks: select posts.id from posts where posts.user_id = changed.user_id"},
    ),
    (
        "a function that says that it reads no table",
        "posts p join marks m on m.post_id = pure(p.id)",
        {OWN, "marks: select posts.id from posts where changed.post_id = pure(posts.id)"},
    ),
]

REFUSED: list[tuple[str, str, list[str]]] = [
    ("nothing links it", "posts p, users u", ["users: no condition"]),
    ("either of two links", "posts p join users u on u.id in (p.user_id, p.id)", ["users: no condition"]),
    ("rows of an array", "posts p, unnest(p.ids) as i (x) join users u on u.id = i.x", ["users: no condition"]),
    (
        "a link that need not hold",
        "posts p cross join users u left join marks m on m.post_id = p.id and m.user_id = u.id",
        ["users: no condition"],
    ),
    (
        "NOT IN, where null hides everything",
        "posts p where p.id not in (select m.post_id from marks m)",
        ["marks: no condition"],
    ),
    (
        "a link by a column of the newest row of all",
        "posts p join (select m.post_id from marks m order by m.n limit 1) m on m.post_id = p.id",
        ["marks: no condition"],
    ),
    (
        "a link by another column than that of DISTINCT ON",
        "posts p join (select distinct on (user_id) user_id, post_id from marks) m on m.post_id = p.id",
        ["marks: no condition"],
    ),
    (
        "LIMIT on the documents",
        "(select * from posts order by title limit 10) p",
        ["posts: a row of it can change the documents of other rows"],
    ),
    (
        "a function that reads tables",
        "posts p where of_posts(p.id) > 1",
        ["it calls of_posts(bigint), which depends on tables"],
    ),
    (
        "the time",
        "posts p join users u on u.id = p.user_id and u.seen > now()",
        ["it calls now(), which depends on the time"],
    ),
    ("the user", "posts p where p.title = current_user", ["it reads CURRENT_DATE, CURRENT_USER or the like"]),
    ("chance", "posts p where random() > 0.5", ["it calls random(), which depends on chance"]),
    ("a sample", "posts p tablesample system (10)", ["it takes a random sample of posts (TABLESAMPLE)"]),
    (
        "a recursive query",
        (
            "posts p join (with recursive r as (select id, boss from users union all select u.id, u.boss from "
            "r join users u on u.boss = r.id) select * from r) r on r.id = p.user_id"
        ),
        ["its query r is recursive"],
    ),
    ("a materialised view", "posts p join kept k on k.id = p.user_id", ["it reads kept, a materialised view"]),
    (
        "PostgreSQL's catalogue",
        "posts p join pg_class c on c.relname = p.title",
        ["it reads pg_class of PostgreSQL's catalogue"],
    ),
    ("a system column", "posts p where p.xmin <> '1'", ["it reads a system column of posts"]),
]


@pytest.fixture
def tables(connection: Connection) -> Connection:
    connection.execute(TABLES)
    return connection


def derived(
    connection: Connection, joined: str, head: str = "'post'::text as entity_type, p.id as entity_id"
) -> Derivation:
    connection.execute(f"create view search_documents as select {head}, null::json as document from {joined}".encode())
    row = connection.execute("select 'search_documents'::regclass::oid::bigint").fetchone()
    assert row is not None
    return derive(read_catalogue(connection, row[0]))


def ways(found: Derivation) -> set[str]:
    return {
        f"{each.relation.name}: {each.way.via or f'by {each.way.id_column}'}".replace("pg_catalog.", "")
        for each in found.attachments
    }


def in_the_way(found: Derivation) -> list[str]:
    return [*(f"{each.relation.name}: {each.reason}" for each in found.refused), *found.problems]


@pytest.mark.parametrize(("joined", "expected"), [row[1:] for row in DERIVED], ids=[row[0] for row in DERIVED])
def test_the_view_says_how_each_table_leads_to_ids(tables: Connection, joined: str, expected: set[str]) -> None:
    found = derived(tables, joined)
    assert in_the_way(found) == []
    assert ways(found) == expected


@pytest.mark.parametrize(("joined", "expected"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_be_derived_is_named(tables: Connection, joined: str, expected: list[str]) -> None:
    found = in_the_way(derived(tables, joined))
    assert len(found) == len(expected)
    for text, start in zip(found, expected, strict=True):
        assert text.startswith(start)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("p.title as entity_type, p.id as entity_id", "the entity_type of the part that reads posts is not a constant"),
        ("'post'::text as entity_type, max(p.id) as entity_id", "posts: entity_id is an expression"),
        ("'post'::text as entity_type, coalesce(p.ref, p.title) as entity_id", "posts: entity_id is an expression"),
    ],
)
def test_the_head_of_a_view_must_say_what_its_documents_are(tables: Connection, head: str, reason: str) -> None:
    found = in_the_way(derived(tables, "posts p", head))
    assert [text[: len(reason)] for text in found] == [reason]
