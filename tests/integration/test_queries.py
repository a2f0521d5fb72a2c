"""Every named query fits the real schema, is used, says its arrow, and knows the same words as the Python side."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import outbox
from outbox.policy.audit import Source
from outbox.policy.event import TRANSITIONS, Status, allowed
from outbox.store.queries import queries, topics
from outbox.store.schema.migrate import migrate
from tests.fixtures.postgres import fresh_database

PACKAGE = Path(outbox.__file__).parent
NAMED = [(topic, name) for topic in topics() for name in queries(topic)]
PLACEHOLDER = re.compile(r"%\((\w+)\)s")
STATES = rf"(?:{'|'.join(Status)})(?: \| (?:{'|'.join(Status)}))*"
ARROW = re.compile(rf"\b({STATES}) -> ({STATES})")


# psycopg sends the type of a timedelta along; a bare PREPARE has to guess. All else must be clear from the text: None
# has no type.
SPAN = re.compile(r"(clock_timestamp\(\)\)?\s*[-+]\s*)%\((\w+)\)s(?!::)")


# What a store fills in; all else is the name of a type.
FILLED_IN = {
    "view": "a_view",
    "id": "d.entity_id",
    "id_text": "d.entity_id::text",
    "id_ops": "pg_catalog",
    "version": "d.version",
    "routing": "null::text",
    "beyond": "d.entity_id > %(after)s",
    "later": "entity_id > %(after)s",
    "order": "d.entity_id",
    "condition": "true",
    "table": "a_view",
    "via": "select changed.entity_id",
}


def prepared_text(text: str) -> str:
    """psycopg's placeholders as PostgreSQL's own; names that a store fills in become plain ones."""
    numbers: dict[str, int] = {}

    text = re.sub(r"\{(\w+)\}", lambda m: FILLED_IN.get(m[1], "text"), text)
    text = SPAN.sub(r"\1%(\2)s::interval", text)
    return PLACEHOLDER.sub(lambda m: f"${numbers.setdefault(m[1], len(numbers) + 1)}", text).replace("%%", "%")


@pytest.fixture(scope="module")
def schema(postgres_url: str, migrated_template: str) -> Iterator[psycopg.Connection[Any]]:
    """One database for all: nothing here is written."""
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        migrate(url, log=True)
        connection.execute(
            "create view a_view as select ''::text as entity_type, ''::text as entity_id, '{}'::json as document"
        )
        yield connection


@pytest.mark.parametrize(("topic", "name"), NAMED, ids=[f"{topic}.{name}" for topic, name in NAMED])
def test_every_query_prepares_against_the_real_schema(schema: psycopg.Connection[Any], topic: str, name: str) -> None:
    schema.execute(f"prepare this as {prepared_text(queries(topic)[name])}".encode())
    schema.execute("deallocate this")


def test_every_query_is_used() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    asked = set(re.findall(r"""["'](\w+)["']""", code))
    assert [f"{topic}.{name}" for topic, name in NAMED if name not in asked] == []


def headers() -> dict[tuple[str, str], str]:
    """The comment under each name."""
    found = {}
    for topic in topics():
        text = (PACKAGE / "store" / "queries" / f"{topic}.sql").read_text(encoding="utf-8")
        for name, comment in re.findall(r"^-- name: (\w+)\n((?:--(?! name| include).*\n)+)", text, re.MULTILINE):
            found[(topic, name)] = " ".join(line.lstrip("- ") for line in comment.splitlines())
    return found


def test_every_query_says_what_it_is_for() -> None:
    told = headers()
    assert not [key for key in NAMED if key not in told]


def arrows() -> list[tuple[str, Status, Status]]:
    """(query, from, to) of the queries that move events; other tables have states of their own."""
    return [
        (f"{topic}.{name}", Status(source), Status(target))
        for (topic, name), text in headers().items()
        if name.startswith("_") or "search_outbox_events" in queries(topic)[name]
        for match in ARROW.finditer(text)
        for source in match[1].split(" | ")
        for target in match[2].split(" | ")
    ]


def test_every_arrow_of_a_query_is_a_transition_of_the_one_table() -> None:
    assert len(arrows()) > 10
    for name, source, target in arrows():
        assert source == target or allowed(source, target), f"{name}: {source} -> {target} is in no table"


def test_every_query_that_writes_a_status_says_its_arrow() -> None:
    told = {name for name, _, _ in arrows()}
    for topic, name in NAMED:
        text = queries(topic)[name]
        moved = re.search(r"update search_outbox_events\s+(?:as )?\w*\s*set status\b", text)
        if moved and "closed as" not in text:
            assert f"{topic}.{name}" in told, f"{topic}.{name} writes a status and says no arrow"


def test_every_transition_of_the_table_has_a_query() -> None:
    known = {(source, target) for _, source, target in arrows()}
    for transition in TRANSITIONS:
        assert (transition.source, transition.target) in known, transition


def check_values(connection: psycopg.Connection[Any], table: str, column: str) -> set[str]:
    rows = connection.execute(
        "select pg_get_constraintdef(oid) from pg_constraint where contype = 'c' and conrelid = %s::regclass", [table]
    ).fetchall()
    for (definition,) in rows:
        if re.search(rf"\b{column}\b", definition):
            return set(re.findall(r"'([^']*)'", definition))
    raise AssertionError(f"no check on {table}.{column}")


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [("search_outbox_events", "status", set(Status)), ("search_outbox_audit", "source", set(Source))],
)
def test_the_checks_of_the_schema_and_the_lists_of_the_code_are_the_same(
    schema: psycopg.Connection[Any], table: str, column: str, words: set[str]
) -> None:
    assert check_values(schema, table, column) == {str(word) for word in words}
