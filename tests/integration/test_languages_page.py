"""docs/languages.md: the SQL of every example runs as its driver sends it; the schema of an event fits real ones."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.string import StrDumperUnknown, StrDumperVarchar

from outbox.store.attach.attach import attach
from tests.fixtures.processes import ROOT
from tests.fixtures.queue import EventTable

PAGE = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs" / "event.schema.json").read_text(encoding="utf-8"))
BLOCK = re.compile(r"^```(\w+) test=(snippet|statement)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A call of ours in the quotes of its language.
CALL = re.compile(r"([\"`])(select outbox_.*?)\1", re.DOTALL)
PARAMETER = re.compile(r"\$\{[^}]*\}|\?|\$\d+")
VALUES = {"outbox_refresh": ["article", "17"], "outbox_enqueue": ["note", "17", "upsert", '{"title": "x"}', "key"]}
# What drivers say of a string's type: nothing (libpq), or one that is not ours (JDBC).
DUMPERS = {"unknown": StrDumperUnknown, "varchar": StrDumperVarchar}


def numbered(statement: str) -> str:
    """Each style of parameters as PostgreSQL's own: `?`, `${...}` of a template, `$1`."""
    number = iter(range(1, 99))
    return PARAMETER.sub(lambda found: found[0] if found[0][1:].isdigit() else f"${next(number)}", statement)


def calls() -> Iterator[tuple[str, str]]:
    for language, kind, text in BLOCK.findall(PAGE):
        found = [text] if kind == "statement" else [match[1] for match in CALL.findall(text)]
        assert found, f"no SQL of ours in:\n{text}"
        yield from ((language, statement) for statement in found)


@pytest.mark.parametrize("kind", DUMPERS)
@pytest.mark.parametrize(("language", "statement"), list(calls()))
def test_the_sql_of_an_example_writes_its_event(
    language: str, statement: str, kind: str, queue: EventTable, database: str
) -> None:
    queue.connection.execute("create table articles (id int primary key, author_id int)")
    queue.connection.execute("insert into articles values (17, 7)")
    with psycopg.connect(database) as connection:
        connection.adapters.register_dumper(str, DUMPERS[kind])
        cursor = psycopg.RawCursor(connection)
        asked = numbered(statement)
        values = next((given for name, given in VALUES.items() if name in asked), [])
        cursor.execute(asked.encode(), values[: len(re.findall(r"\$\d+", asked))])
        assert queue.counts() == {}
        connection.commit()
    (row,) = queue.rows()
    assert (row.entity_id, row.op) == ("17", "upsert" if row.entity_type == "note" else "refresh")


def shown(queue: EventTable) -> list[dict[str, Any]]:
    """Events as JSON, by the columns that are a producer's own."""
    columns = ", ".join(SCHEMA["properties"])
    with queue.connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            f"select to_jsonb(e) as event from (select {columns} from search_outbox_events) e".encode()
        )
        return [row["event"] for row in rows]


def fits(event: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).is_valid(event))


def test_what_each_kind_of_producer_writes_fits_the_schema(queue: EventTable) -> None:
    run = queue.connection.execute
    run("select outbox_refresh('article', '1', routing => 'r')")
    run(
        "select outbox_enqueue('note', '1', 'upsert', '{\"a\": 1}', version => 9223372036854775807,"
        " idempotency_key => 'k', traceparent => '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')"
    )
    run("select outbox_enqueue('note', '1', 'delete', version => 0)")
    run("insert into search_outbox_events (entity_type, entity_id, op) values ('note', '2', 'upsert')")
    run("create table thing (id int primary key, name text)")
    attach(queue.connection, "thing", entity_type="thing", id_column="id")
    run("insert into thing values (1, 'x')")
    run("delete from thing")
    run("create table child (id int primary key, thing_id int)")
    attach(queue.connection, "child", entity_type="owner", id_column="thing_id")
    run("insert into child values (1, 1)")
    events = shown(queue)
    assert len(events) == 7
    assert [event for event in events if not fits(event)] == []
