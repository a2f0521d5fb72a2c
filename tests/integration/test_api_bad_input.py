"""Bad input at every endpoint: a clear 4xx with a problem document, nothing changed, nothing shown unescaped."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.fixtures.console import ACT, Served, post, serving
from tests.fixtures.failures import events
from tests.fixtures.postgres import fresh_database


@pytest.fixture(scope="module")
def shared(postgres_url: str, migrated_template: str, elastic_url: str) -> Iterator[tuple[Served, psycopg.Connection]]:
    """One console with three failed events for all who are refused: what changes nothing needs nothing fresh."""
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        events(connection, 3)
        with serving(DATABASE_URL=url, ELASTIC_URL=elastic_url, ELASTIC_INDEX="nothing") as served:
            yield served, connection


UNKNOWN = "00000000-0000-4000-8000-000000000000"


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Asserts an RFC 9457 document with this status, and returns it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "instance"} <= body.keys()
    assert body["status"] == status
    return body


def state(connection: psycopg.Connection) -> list[Any]:
    tables = ["events", "audit", "replays", "controls", "webhook_deliveries"]
    return [connection.execute(f"select * from search_outbox_{name} order by 1").fetchall() for name in tables]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/events/{UNKNOWN}", 404),
        ("/events/not-a-uuid", 422),
        ("/events?limit=0", 422),
        ("/events?since=yesterday", 422),
        ("/events?entity_type=%00", 422),
        ("/events?entiy_type=x", 422),
        ("/events?cursor=forged", 400),
        ("/failed/preview?page=0", 422),
        ("/replays?cursor=W10", 400),
        (f"/replays/{UNKNOWN}", 404),
        ("/audit?cursor=-1", 400),
        ("/audit/export?format=xls", 422),
        ("/webhooks/deliveries?cursor=x", 400),
        ("/nothing", 404),
        ("/events/../../etc/passwd", 404),
    ],
)
def test_a_wrong_question_is_answered_with_a_problem(
    shared: tuple[Served, psycopg.Connection], path: str, status: int
) -> None:
    problem(shared[0].client.get(f"/api/v1{path}"), status)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/failed/replay", {"by": "alice"}, 422),  # no reason
        ("/failed/replay", {"reason": "r"}, 422),  # nobody
        ("/failed/replay", {**ACT, "reason": ""}, 422),
        ("/failed/replay", {**ACT, "reason": "x" * 10_240}, 422),
        ("/failed/replay", {**ACT, "reason": "two\nlines"}, 422),
        ("/failed/replay", {**ACT, "limit": 1_000_001}, 422),
        ("/failed/replay", {**ACT, "ids": [str(uuid4()) for _ in range(501)]}, 422),
        ("/failed/replay", {**ACT, "ids": [UNKNOWN]}, 404),
        ("/failed/replay", {**ACT, "entity_type": "nothing like it"}, 404),
        ("/failed/replay", {**ACT, "entiy_type": "misspelt"}, 422),
        ("/failed/replay", {**ACT, "webhook_url": "http://169.254.169.254/latest"}, 422),
        ("/failed/replay", [], 422),
        ("/failed/flush", {**ACT, "expect": 5, "approved_by": "alice"}, 422),
        ("/failed/flush", {**ACT, "expect": 5, "approved_by": "bob"}, 409),
        (f"/events/{UNKNOWN}/discard", ACT, 404),
        (f"/replays/{UNKNOWN}/cancel", ACT, 404),
        ("/resume", {**ACT, "let_fail": "nope"}, 422),
        ("/audit/prune", {**ACT, "older_than_days": -1}, 422),
        (f"/webhooks/deliveries/{UNKNOWN}/redeliver", ACT, 404),
    ],
)
def test_a_wrong_act_changes_nothing(
    shared: tuple[Served, psycopg.Connection], path: str, body: Any, status: int
) -> None:
    console, connection = shared
    before = state(connection)
    problem(post(console.client, path, body), status)
    assert state(connection) == before


def test_a_body_that_is_no_json_or_too_large_or_of_another_type_is_refused(
    shared: tuple[Served, psycopg.Connection],
) -> None:
    client, url = shared[0].client, "/api/v1/failed/replay"
    json_type = {"content-type": "application/json"}
    problem(client.post(url, content=b"{", headers=json_type), 400)
    problem(client.post(url, content=b'"\xff"', headers=json_type), 400)
    problem(client.post(url, content=b"[" * 100_000, headers=json_type), 400)
    problem(client.post(url, content=b"a=b", headers={"content-type": "application/x-www-form-urlencoded"}), 415)
    problem(client.post(url, content=b"x", headers={"content-type": "text/plain"}), 415)
    problem(client.post(url, content=b" " * 300_000, headers=json_type), 413)
    assert client.get("/api/v1/ops").status_code == 200


HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(1)> =cmd() {{7919*7907}}"


def test_hostile_text_is_shown_as_text_on_every_page(console: Served, connection: psycopg.Connection) -> None:
    client = console.client
    (id,) = events(connection, 1, entity_type=HOSTILE, prefix=HOSTILE, reason=HOSTILE, op=HOSTILE)
    hostile = json.dumps({HOSTILE: HOSTILE})
    connection.execute("update search_outbox_events set payload = %s, error = %s where id = %s", [hostile, HOSTILE, id])
    started = post(client, "/failed/replay", {"by": HOSTILE, "reason": HOSTILE, "ids": [str(id)]}).json()
    post(client, "/pause", {"by": HOSTILE, "reason": HOSTILE})
    events(connection, 2, entity_type=HOSTILE, prefix=HOSTILE + "2", reason=HOSTILE)
    pages = ["", "/failures", "/failures/list", "/events", f"/events/{id}", "/replay", "/replays", "/audit", "/system"]
    for page in [*pages, f"/replays/{started['id']}", "/webhooks"]:
        answer = client.get(f"/ops/queue{page}")
        assert answer.status_code == 200, page
        assert "<script>alert" not in answer.text, page
        assert "<img src=x" not in answer.text, page
        assert "62615533" not in answer.text, page
    asked = client.get("/ops/queue/events", params={"entity_type": HOSTILE})
    assert "&lt;script&gt;" in asked.text
    refused = client.get("/ops/queue/events", params={"fingerprint": HOSTILE})
    assert refused.status_code == 422
    assert "<script>alert" not in refused.text


def test_a_body_without_a_length_is_bounded_too(shared: tuple[Served, psycopg.Connection]) -> None:
    chunks = (b" " * 50_000 for _ in range(10))
    answer = shared[0].client.post(
        "/api/v1/failed/replay", content=chunks, headers={"content-type": "application/json"}
    )
    problem(answer, 413)
