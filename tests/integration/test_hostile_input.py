"""Hostile text through SQL, the library and HTTP: a clear refusal or an exact row, never a crash, shown as text."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql

from outbox import Outbox
from outbox.web import application, routing
from outbox.web.auth import RateLimits
from tests.fixtures.console import Served, serving
from tests.fixtures.failures import events
from tests.fixtures.hostile import CONTROL, HOSTILE, TEXTS, dealt
from tests.fixtures.postgres import fresh_database
from tests.integration.test_bad_input import CASES, REFUSED, Case

Connection = psycopg.Connection[Any]

# outbox_enqueue and the library: refuse early only what the worker would refuse, and write what was given


def enqueued(case: Case) -> dict[str, Any]:
    row = {"entity_type": "article", "entity_id": "1", "op": "upsert", "payload": '{"title": "x"}', **case.row}
    named = {"version": row.pop("event_version"), **row} if "event_version" in row else row
    return {name: value for name, value in named.items() if name != "created_at"}


# An empty type makes an id of its own (`:1`) by plain SQL; the function asks for a name, which is what was meant.
OPEN_TO_ENQUEUE = [case for case in CASES if "created_at" not in case.row and case.name != "an empty type"]


@pytest.fixture(scope="module")
def producing(postgres_url: str, migrated_template: str) -> Iterator[Connection]:
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        yield connection


def written(connection: Connection, id: Any) -> dict[str, Any]:
    columns = "entity_type, entity_id, op, payload::text as payload, routing, traceparent, event_version as version"
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute(f"select {columns} from search_outbox_events where id = %s".encode(), [id]).fetchone()
    assert found is not None
    return found


def count(connection: Connection) -> int:
    row = connection.execute("select count(*) from search_outbox_events").fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("case", OPEN_TO_ENQUEUE, ids=[case.name for case in OPEN_TO_ENQUEUE])
def test_enqueue_refuses_early_only_what_could_never_be_projected(producing: Connection, case: Case) -> None:
    named = enqueued(case)
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}{}").format(
            sql.Identifier(name), sql.Placeholder(name), sql.SQL("::json" if name == "payload" else "")
        )
        for name in named
    )
    before, refused, row = count(producing), None, None
    try:
        row = producing.execute(sql.SQL("select outbox_enqueue({})").format(arguments), named).fetchone()
    except psycopg.Error as error:
        refused = error
    if refused is not None:
        assert (refused.sqlstate or "22")[:2] in ("22", "23", "42"), refused
        assert case.reason == REFUSED or case.sqlstate, f"a good event was refused: {refused}"
        assert count(producing) == before
        return
    assert row is not None
    found = written(producing, row[0])
    for name, value in named.items():
        if value is not None:
            assert str(found[name]) == str(value), name


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize(
    "field", ["entity_type", "entity_id", "op", "payload", "routing", "idempotency_key", "traceparent"]
)
def test_the_library_writes_exactly_what_it_was_given_or_nothing(producing: Connection, field: str, what: str) -> None:
    given: dict[str, Any] = {"entity_type": "a", "entity_id": uuid4().hex, "op": "upsert", "payload": "{}"}
    given[field] = HOSTILE[what]
    before = count(producing)
    door = Outbox("postgresql://nobody@127.0.0.1:1/nothing")
    try:
        with producing.transaction():
            id = door.enqueue(producing, **given)
    except (psycopg.Error, UnicodeEncodeError, UnicodeDecodeError):
        assert count(producing) == before
        return
    row = producing.execute(
        sql.SQL("select {}::text from search_outbox_events where id = %s").format(sql.Identifier(field)), [id]
    ).fetchone()
    assert row == (HOSTILE[what],)


# HTTP: every parameter of every question, every field of every act and form


@pytest.fixture(scope="module")
def shared(postgres_url: str, migrated_template: str, elastic_url: str) -> Iterator[tuple[Served, Connection]]:
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        events(connection, 2)
        with serving(DATABASE_URL=url, ELASTIC_URL=elastic_url, ELASTIC_INDEX="nothing") as served:
            served.app.state.gate.pace = RateLimits(clock=iter(range(10**9)).__next__)  # a second passes at every read
            yield served, connection


QUESTIONS = [door for door in application.API if door.method == "GET"]
ASKED = (
    "entity_type", "entity_id", "error_reason", "error_code", "dead_reason", "failure_type", "fingerprint", "trace_id",
    "ids", "since", "until", "status", "limit", "cursor", "page", "page_size", "action", "actor", "batch_id", "format",
    "hours", "live",
)  # fmt: skip


def is_answer(answer: httpx.Response) -> None:
    """Never a crash; a refusal is a problem document with nothing raw in it."""
    assert answer.status_code < 500, answer.text[:300]
    assert not CONTROL.search(str(answer.headers)), answer.headers
    if answer.status_code >= 400 and "problem" in answer.headers["content-type"]:
        assert answer.json()["status"] == answer.status_code
        assert len(answer.text) < 10_000


def sendable(text: str) -> str:
    """What a client can put on the wire at all."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1") if "\udcff" in text else text


@pytest.mark.parametrize("what", TEXTS)
def test_every_parameter_of_every_question_takes_hostile_text(shared: tuple[Served, Connection], what: str) -> None:
    client, text = shared[0].client, sendable(HOSTILE[what])[:3_000]
    for door in QUESTIONS:
        path = routing.API_PREFIX + door.path.replace("{id}", str(uuid4()))
        for name in dealt(ASKED, what):
            is_answer(client.get(path, params={name: text}))
        is_answer(client.get(routing.API_PREFIX + door.path.replace("{id}", quote(text, safe=""))))


ACTS = [door for door in application.API if door.method == "POST"]
FIELDS = (
    "by", "reason", "approved_by", "entity_type", "entity_id", "error_reason", "error_code", "dead_reason",
    "failure_type", "fingerprint", "trace_id", "ids", "since", "until", "limit", "expect", "rate", "dry_run",
    "webhook_url", "older_than_days", "let_fail", "action", "actor", "batch_id",
)  # fmt: skip


def made(connection: Connection) -> tuple[Any, ...] | None:
    """How much there is of what acts make; an earlier one that was accepted may still move its rows."""
    return connection.execute(
        "select (select count(*) from search_outbox_events), (select count(*) from search_outbox_replays),"
        " (select count(*) from search_outbox_audit where action not like 'REPLAY%'),"
        " (select count(*) from search_outbox_controls), (select count(*) from search_outbox_webhook_deliveries)"
    ).fetchone()


@pytest.mark.parametrize("what", TEXTS)
def test_every_field_of_every_act_takes_hostile_text(shared: tuple[Served, Connection], what: str) -> None:
    served, connection = shared
    client, text = served.client, HOSTILE[what]
    for door in ACTS:
        path = routing.API_PREFIX + door.path.replace("{id}", str(uuid4()))
        for field in dealt(FIELDS, what):
            before = made(connection)
            # Without a reason unless that is the field: most of these must be refused as a whole.
            body = {"by": "alice", field: text}
            answer = client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
            is_answer(answer)
            if answer.status_code >= 400:
                assert made(connection) == before, (path, field)
