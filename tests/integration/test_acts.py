"""What people do and what is kept of it: sessions that end, reasons that stay, acts that are audited each time, pages
that refuse what they do not know, and nothing about people for who has not logged in."""

import re
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from outbox.policy.inputs import EventFilter
from outbox.web import application, routing
from outbox.web.application import endpoints_only
from outbox.web.auth import Role
from tests.fixtures.audits import age_audit
from tests.fixtures.console import ACT, TOKENS, Served, StartConsole, post
from tests.fixtures.failures import audit_counts, events
from tests.fixtures.waiting import eventually

SAME = {"sec-fetch-site": "same-origin"}
UNKNOWN = "00000000-0000-4000-8000-000000000000"
EVERY_DOOR = [
    *((door, door.path) for door in application.PAGES),
    *((door, routing.API_PREFIX + door.path) for door in application.API),
]


@pytest.fixture
def elastic_url() -> str:
    """None of this asks Elasticsearch, which takes long to start: nobody listens there."""
    return "http://127.0.0.1:1"


@pytest.fixture
def index() -> str:
    return "absent"


def ask(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """The endpoint at this path, with a body of its kind where it needs one."""
    path = re.sub(r"\{\w+\}", UNKNOWN, path)
    if method == "GET":
        return client.get(path, **more)
    if path.startswith("/api/"):
        return client.post(path, json={}, **more)
    return client.post(path, data={}, headers=SAME, **more)


# Sessions


def test_logging_out_ends_the_session_for_every_copy_of_its_cookie(guarded: Served) -> None:
    client, thief, other = guarded.client, guarded.client, guarded.client
    client.post("/ops/queue/login", data={"token": TOKENS["viewer"]}, headers=SAME)
    other.post("/ops/queue/login", data={"token": TOKENS["viewer"]}, headers=SAME)
    thief.cookies.update(dict(client.cookies))
    assert thief.get("/ops/queue").status_code == 200
    client.post("/ops/queue/logout", headers=SAME)
    assert thief.get("/ops/queue").status_code == 303
    assert other.get("/ops/queue").status_code == 200, "only the session that was ended"


# What is audited each time


def test_unmasking_again_under_one_key_is_audited_again_and_kept_nowhere(
    start_console: StartConsole, connection: psycopg.Connection
) -> None:
    served = start_console(OUTBOX_REDACT_FIELDS="email")
    (id,) = connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        """ values ('a', '1', 'upsert', '{"email": "secret@example"}') returning id"""
    ).fetchone() or (None,)
    for _ in range(2):
        answer = served.client.post(
            f"/ops/queue/events/{id}/unmask", data=ACT, headers={**SAME, "idempotency-key": "one"}
        )
        assert "secret@example" in answer.text
    assert audit_counts(connection) == {"PAYLOAD_UNMASKED": 2}
    kept = [held.response.body for held in served.app.state.kept._held.values() if held.response]
    assert not [body for body in kept if b"secret@example" in bytes(body)]


# Who approves


APPROVED_BY_ONESELF = [
    (None, "ada"),
    ("bob", "ada"),
    ("bob", "Bob"),
    ("bob", "ada for bob"),
    ("bob", "eve for ada"),
    ("bob", " A\u200bDA "),
    ("bob", "\uff41da"),
]


def test_a_flush_is_approved_by_someone_else_than_who_asks_for_it(
    guarded: Served, connection: psycopg.Connection
) -> None:
    events(connection, 2)
    client, body = guarded.as_("admin"), {"reason": "junk", "entity_type": "block", "expect": 2}
    for by, approved_by in APPROVED_BY_ONESELF:
        asked = body | {"approved_by": approved_by} | ({"by": by} if by else {})
        refused = post(client, "/failed/flush", asked)
        assert refused.status_code == 422, (by, approved_by, refused.text)
        assert [each["field"] for each in refused.json()["errors"]] == ["approved_by"]
        assert audit_counts(connection) == {}
    assert post(client, "/failed/flush", {**body, "by": "bob", "approved_by": "Adam", "expect": 3}).status_code == 409
    assert audit_counts(connection) == {}
    assert post(client, "/failed/flush", {**body, "by": "bob", "approved_by": "Adam"}).json()["count"] == 2
    assert audit_counts(connection)["FLUSH_SUMMARY"] == 1


# Reasons


def acts(connection: psycopg.Connection) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every endpoint of the API that takes a reason -> its address and what else its body needs to act."""
    one, two = events(connection, 2)
    events(connection, 2, entity_type="order", prefix="o")
    events(connection, 1, entity_type="junk", prefix="j")
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'old', 'cli')")
    age_audit(connection)
    replay, delivery = uuid4(), uuid4()
    connection.execute(
        "insert into search_outbox_replays (id, requested_by, requested_reason) values (%s, 'eve', 'x')", [replay]
    )
    connection.execute(
        "insert into search_outbox_webhook_deliveries (id, type, url, body)"
        " values (%s, 'replay.settled', 'https://hooks.example/secret', '{}')",
        [delivery],
    )
    return {
        "/events": ("/events", {"entity_type": "block", "entity_id": "e1"}),
        "/events/{id}/replay": (f"/events/{one}/replay", {}),
        "/events/{id}/discard": (f"/events/{two}/discard", {}),
        "/failed/replay": ("/failed/replay", {"entity_type": "order"}),
        "/failed/flush": ("/failed/flush", {"entity_type": "junk", "expect": 1, "approved_by": "bob"}),
        "/replays/{id}/cancel": (f"/replays/{replay}/cancel", {}),
        "/pause": ("/pause", {}),
        "/resume": ("/resume", {}),
        "/audit/prune": ("/audit/prune", {"older_than_days": 7, "actor": "old"}),
        "/webhooks/deliveries/{id}/redeliver": (f"/webhooks/deliveries/{delivery}/redeliver", {}),
    }


def takes_a_reason() -> set[str]:
    document = endpoints_only().openapi()
    found = set()
    for path, methods in document["paths"].items():
        told = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        name = told.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name and "reason" in document["components"]["schemas"][name]["properties"]:
            found.add(path.removeprefix(routing.API_PREFIX))
    return found


def reasons(connection: psycopg.Connection) -> set[str]:
    return {row[0] for row in connection.execute("select reason from search_outbox_audit")}


def is_written(connection: psycopg.Connection, reason: str) -> bool:
    return reason in reasons(connection)


def test_every_endpoint_that_takes_a_reason_keeps_it(console: Served, connection: psycopg.Connection) -> None:
    doors = acts(connection)
    assert doors.keys() == takes_a_reason()
    for number, (door, (path, body)) in enumerate(doors.items()):
        answer = post(console.client, path, {"by": "alice", "reason": f"because {number}", **body})
        assert answer.is_success, (door, answer.text)
        eventually(partial(is_written, connection, f"because {number}"), what=f"the reason of {door}")


# The first page and its filter


FILTERED = [f"/ops/queue{rest}" for rest in ("", "/failures", "/failures/list", "/events", "/replay")]


def test_every_filter_form_has_every_field_and_every_endpoint_refuses_what_it_does_not_know(console: Served) -> None:
    """Passed over, a filter that is misspelt matches everything."""
    for path in FILTERED:
        page = console.client.get(path).text
        form = page[page.index(f'method="get" action="{path}"') :].partition("</form>")[0]
        named = set(re.findall(r'name="(\w+)"', form)) - {"status"}
        assert named == set(EventFilter.__dataclass_fields__) - {"ids"}, path
    for door, path in EVERY_DOOR:
        if door.role is Role.ANYONE:
            continue
        answer = ask(console.client, door.method, path, params={"entiy_type": "x"})
        assert answer.status_code == 422, f"{door.method} {path}: {answer.status_code}"
        assert "entiy_type" in answer.text, f"{door.method} {path} does not name it"


# Without login


def test_nothing_about_people_is_shown_without_login(guarded: Served, connection: psycopg.Connection) -> None:
    (id,) = events(connection, 1)
    act = {"by": "canary-person", "reason": "canary-reason"}
    admin = guarded.as_("admin")
    for path in ("/pause", f"/events/{id}/discard"):
        assert post(admin, path, act).is_success
    assert "canary" in admin.get("/ops/queue").text
    stranger = guarded.client
    asked = [ask(stranger, door.method, path) for door, path in EVERY_DOOR]
    asked += [stranger.get(path) for path in ("/nothing", "/static/nothing", f"/ops/queue/events/{id}", "/api/v1/x")]
    asked.append(stranger.post("/ops/queue/login", data={"token": "x"}, headers=SAME))
    for answer in asked:
        told = f"{answer.headers} {answer.text}"
        assert "canary" not in told, answer.url
        assert not [name for name in ("vic", "olga", "ada") if re.search(rf"\b{name}\b", told)], answer.url


@pytest.mark.parametrize("fields", ["email"], ids=["masked"])
def test_a_deeply_nested_payload_is_shown_or_said_to_be_too_deep(
    start_console: StartConsole, connection: psycopg.Connection, fields: str
) -> None:
    served = start_console(OUTBOX_REDACT_FIELDS=fields)
    for depth in (400, 3_000):
        for opened, closed in (("[", "]"), ('{"a":', "}")):
            inner = opened * depth + '{"email": "secret@example"}' + closed * depth
            (id,) = connection.execute(
                "insert into search_outbox_events (entity_type, entity_id, op, payload)"
                " values ('a', '1', 'upsert', %s) returning id",
                [f'{{"deep": {inner}}}'],
            ).fetchone() or (None,)
            for path in (f"/api/v1/events/{id}", f"/ops/queue/events/{id}"):
                answer = served.client.get(path)
                assert answer.status_code == 200, (depth, opened, path)
                assert not fields or "secret@example" not in answer.text
