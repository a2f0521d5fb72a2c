"""No statement moves a row out of `processing` without the token of its claim: read from the text of every query, and
run against rows that another worker holds."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from outbox.store.queries import queries
from outbox.store.schema.migrate import migrate
from tests.fixtures.queue import EventTable, fresh_queue
from tests.integration.test_queries import NAMED, PLACEHOLDER, prepared_text

# The reclaimer's, for rows without a lease: set so by hand, or left by a crash. `reclaim` has the token of a lease that
# has run out.
RECLAIMER = {"workers.sweep_fresh", "workers.sweep_due", "workers.sweep_suspects"}
CHANGE = r"(?:update|delete from|merge into) search_outbox_events\b"


# Their text


def outside(text: str, words: str) -> Iterator[re.Match[str]]:
    """Where one of these stands outside all parentheses."""
    depth = 0
    for found in re.finditer(rf"[()]|\b(?:{words})\b", text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0 and found[0] not in "()":
            yield found


def split(text: str, words: str) -> list[str]:
    places = [0, *(place for found in outside(text, words) for place in found.span()), len(text)]
    return [text[start:end].strip() for start, end in zip(places[::2], places[1::2], strict=True)]


def parts(text: str) -> dict[str, str]:
    """The common table expressions of a statement by name; the statement behind them is that without a name."""
    found, rest = {}, re.sub(r"--.*", "", text).strip()
    while opening := re.match(r"(?:with(?: recursive)?|,)\s+(\w+) as (?:materialized )?(?=\()", rest):
        end = next(place for place, depth in depths(rest, opening.end()) if depth == 0)
        found[opening[1]] = rest[opening.end() + 1 : end].strip()
        rest = rest[end + 1 :].strip()
    return found | {"": rest}


def depths(text: str, start: int) -> Iterator[tuple[int, int]]:
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        yield place, depth


def terms(statement: str) -> list[str]:
    """What holds of every row that it takes: all terms of its WHERE, or none where one of several is enough."""
    where = split(statement, "where")[1:]
    inner = split(where[0], "order by|returning|for no key update")[0] if where else ""
    return [] if list(outside(inner, "or")) else split(inner, "and")


def is_fenced(statement: str, known: dict[str, str]) -> bool:
    """Its rows have the token, or are some of a set that does."""
    if any(re.fullmatch(r"(?:\w\.)?lease_token = %\(token\)s", term) for term in terms(statement)):
        return True
    of = re.compile(r"(?:\w\.)?id = any \(array\(select id from (\w+)\)\)")
    return any(is_fenced(known[found[1]], known) for term in terms(statement) if (found := of.fullmatch(term)))


def is_of_other_states(statement: str) -> bool:
    """Its rows are not in `processing`: it says so itself, or of the set of locked rows that it takes them from."""
    state = re.compile(r"(?:\w\.)?status (?:= '(?!processing)\w+'|in \((?:'(?!processing)\w+'(?:, )?)+\))")
    held = re.compile(r"e\.id = any \(array\(select id from held\s+where (.*)\)\)", re.DOTALL)
    for term in terms(statement):
        kinds = split(found[1], "or") if (found := held.fullmatch(term)) else [term]
        if all(any(map(state.fullmatch, split(kind.removeprefix("(").rstrip(")"), "and"))) for kind in kinds):
            return True
    return any(map(state.fullmatch, terms(statement)))


def movers() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every part of a query that writes the status of events that are there, or removes them."""
    for topic, name in NAMED:
        known = parts(queries(topic)[name])
        for text in known.values():
            if re.match(CHANGE, text) and ("status = " in split(text, "where")[0] or text.startswith("delete")):
                yield f"{topic}.{name}", text, known


def test_every_statement_that_moves_a_row_out_of_processing_has_the_token() -> None:
    found = list(movers())
    assert {name for name, _, _ in found} >= {
        "events.settle",
        "events.settle_done",
        "events.abandon",
        "workers.reclaim",
    }
    assert {
        name for name, text, known in found if not is_fenced(text, known) and not is_of_other_states(text)
    } == RECLAIMER


def test_every_change_of_an_event_is_one_that_the_check_above_reads() -> None:
    for topic, name in NAMED:
        text = re.sub(r"--.*", "", queries(topic)[name])
        read = [part for part in parts(text).values() if re.match(CHANGE, part)]
        assert len(re.findall(CHANGE, text)) == len(read), f"{topic}.{name}"
        unread = r"(?:update|delete from) only|merge into|insert into search_outbox_events\b.*\bdo update\b"
        assert not re.search(unread, text, re.DOTALL), f"{topic}.{name}"


# What they do


OWNER = "w1"


@pytest.fixture(scope="module")
def held(postgres_url: str, migrated_template: str) -> Iterator[tuple[EventTable, UUID, list[UUID]]]:
    """Events that a worker holds, fresh ones and suspects: the table, their token, their ids."""
    with fresh_queue(postgres_url, migrated_template) as queue:
        migrate(queue.url, log=True)
        queue.connection.execute(
            "create view a_view as select ''::text as entity_type, ''::text as entity_id, '{}'::json as document,"
            " 0::bigint as version"
        )
        queue.produce_many(3)
        token = queue.claim(queue.store(OWNER)).token
        yield queue, token, [row.id for row in queue.rows()]


def value(name: str, of_type: str, number: int, token: UUID, ids: list[UUID]) -> Any:
    """As harmful as a caller could make it: all ids, the holder's own name."""
    match of_type:
        case "uuid":
            return token if name == "token" else ids[0]
        case "uuid[]":
            return ids
        case "integer" | "bigint" | "smallint" | "real" | "double precision" | "numeric":
            return number
        case "boolean":
            return True
        case "interval" | "timestamp with time zone":
            return "0" if of_type == "interval" else "-infinity"
        case "json" | "jsonb":
            return "[" + ", ".join(f'{{"id": "{id}", "verdict": "done", "status": "done"}}' for id in ids) + "]"
        case _:
            return [OWNER] * len(ids) if of_type.endswith("[]") else OWNER


def still_held(held: tuple[EventTable, UUID, list[UUID]], topic: str, name: str, number: int, token: UUID) -> int:
    """How many rows are as they were after this query with this token."""
    queue, own, ids = held
    connection, text = queue.connection, queries(topic)[name]
    with connection.transaction(force_rollback=True):
        connection.execute(f"prepare this as {prepared_text(text)}".encode())
        types = queue.value("select parameter_types::text[] from pg_prepared_statements where name = 'this'")
        given = zip(dict.fromkeys(PLACEHOLDER.findall(text)), types, strict=True)
        values = [sql.Literal(value(each, of_type, number, token, ids)) for each, of_type in given]
        call = sql.SQL("execute this ({})").format(sql.SQL(", ").join(values)) if values else sql.SQL("execute this")
        try:
            connection.execute(call)
            found = queue.rows(
                "status = 'processing' and lease_token = %(own)s and owner = %(owner)s", own=own, owner=OWNER
            )
        except psycopg.Error:  # it has changed nothing
            found = ids
    connection.execute("deallocate all")
    return len(found)


WRITES = re.compile(r"\b(?:update|delete from|insert into) ")
WRITERS = [(topic, name) for topic, name in NAMED if WRITES.search(queries(topic)[name])]


@pytest.mark.parametrize(("topic", "name"), WRITERS, ids=[f"{topic}.{name}" for topic, name in WRITERS])
def test_no_query_changes_who_holds_a_row_without_the_token(
    held: tuple[EventTable, UUID, list[UUID]], topic: str, name: str
) -> None:
    assert [still_held(held, topic, name, number, uuid4()) for number in (0, 1, 1000)] == [3, 3, 3]


@pytest.mark.parametrize("name", ["settle_done", "settle", "release_token", "abandon"])
def test_with_the_token_the_same_query_does(held: tuple[EventTable, UUID, list[UUID]], name: str) -> None:
    """Or the test above would show nothing."""
    assert still_held(held, "events", name, 1000, held[1]) == 0
