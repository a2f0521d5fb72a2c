"""Access: every endpoint as every role, hosts, other sites, tokens that change, and the headers on every answer."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from outbox.web import application, routing
from outbox.web.auth import LINE, PEOPLE, RateLimits, Role
from outbox.web.routing import Endpoint
from tests.fixtures.console import ACT, TOKENS, Served, StartConsole, post
from tests.fixtures.failures import audit_counts, events

DOORS = [
    *((door, door.path) for door in application.PAGES if door.role is not Role.ANYONE),
    *((door, routing.API_PREFIX + door.path) for door in application.API),
]
ID = "00000000-0000-4000-8000-000000000000"


def ask(client: httpx.Client, door: Endpoint, path: str) -> httpx.Response:
    """The endpoint with an empty body: with access one learns what is missing, and nothing happens."""
    path = re.sub(r"\{\w+\}", ID, path)
    if door.method == "GET":
        return client.get(path)
    if path.startswith("/api/"):
        return client.post(path, json={})
    return client.post(path, data={}, headers={"sec-fetch-site": "same-origin"})


def test_every_endpoint_is_shut_without_a_token_and_by_role_with_one(guarded: Served) -> None:
    guarded.app.state.gate.pace = RateLimits(count(step=60).__next__)  # nobody is too quick
    clients = {str(role): guarded.as_(str(role)) for role in PEOPLE}
    nobody, wrong = guarded.client, guarded.client
    wrong.headers["authorization"] = "Bearer obx_wrong"
    for door, path in DOORS:
        for stranger in (nobody, wrong):
            answer = ask(stranger, door, path)
            login = answer.status_code == 303 and answer.headers["location"].startswith("/ops/queue/login")
            assert answer.status_code == 401 or login, f"{door.method} {path} let a stranger in: {answer.status_code}"
        for role in PEOPLE:
            answer = ask(clients[str(role)], door, path)
            shut = answer.status_code in (401, 403)
            assert shut is not role.allows(door.role), f"{door.method} {path} as {role}: {answer.status_code}"


def test_logins_and_refusals_leave_one_line_and_a_count_each_and_never_the_token(guarded: Served) -> None:
    with structlog.testing.capture_logs() as logs:
        client = guarded.client
        wrong(client)
        client.post("/ops/queue/login", data={"token": "obx_wrong"}, headers={"sec-fetch-site": "same-origin"})
        client.post("/ops/queue/login", data={"token": TOKENS["viewer"]}, headers={"sec-fetch-site": "same-origin"})
        bearer = {"authorization": f"Bearer {TOKENS['viewer']}"}
        for _ in range(3):
            guarded.client.get("/api/v1/ops", headers=bearer)
        guarded.client.post("/api/v1/pause", json=ACT, headers=bearer)
        client.post("/ops/queue/login", data={}, headers={"sec-fetch-site": "cross-site"})
    lines = [(line["verdict"], line["name"], line["role"], line["client"]) for line in logs]
    assert {line["event"] for line in logs} == {"console.access"}
    ip = "127.0.0.1"
    assert lines == [
        ("wrong_token", None, None, ip),
        ("wrong_token", None, None, ip),
        ("logged_in", "vic", "viewer", ip),
        ("role", "vic", "viewer", ip),
        ("cross_site", None, None, ip),
    ]
    assert not any(secret in str(logs) for secret in ("obx_wrong", TOKENS["viewer"]))
    page = guarded.client.get("/metrics").text
    counts = dict(re.findall(r'outbox_console_access_total\{.*verdict="(\w+)"\} ([\d.]+)', page))
    assert counts == {
        "logged_in": "1.0",
        "wrong_token": "2.0",
        "too_often": "0.0",
        "role": "1.0",
        "cross_site": "1.0",
        "host": "0.0",
    }


def test_a_flood_of_refusals_is_counted_and_not_written(guarded: Served) -> None:
    guarded.app.state.gate._lines = RateLimits(lambda: 0.0)
    with structlog.testing.capture_logs() as logs:
        for _ in range(60):
            wrong(guarded.client)
    assert len(logs) == LINE.burst
    page = guarded.client.get("/metrics").text
    found = re.findall(r'outbox_console_access_total\{.*verdict="(?:wrong_token|too_often)"\} ([\d.]+)', page)
    assert sum(map(float, found)) == 60


@pytest.mark.parametrize("host", ["evil.example:8090", "127.0.0.1.evil.example"])
def test_without_tokens_a_rebound_name_is_refused_everywhere(console: Served, host: str) -> None:
    client = console.client
    for path in ("/ops/queue", "/api/v1/ops", "/", "/healthz"):
        assert client.get(path, headers={"host": host}).status_code == 403
    assert post(client, "/pause", ACT, host=host).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
    ],
)
def test_a_request_of_another_sites_page_does_nothing(
    console: Served, connection: Any, headers: dict[str, str]
) -> None:
    client = console.client
    assert post(client, "/pause", ACT, **headers).status_code == 403
    assert client.post("/ops/queue/pause", data=ACT, headers=headers).status_code == 403
    assert connection.execute("select count(*) from search_outbox_controls").fetchone() == (0,)


def test_nothing_that_a_page_of_another_site_can_fetch_writes_to_a_row(console: Served, connection: Any) -> None:
    """Every address by GET and HEAD. Only a program's GET of an export leaves a trace: the contract has it as a GET."""
    (id,) = events(connection, 1)
    paths = [door.path for door in application.PAGES] + [routing.API_PREFIX + door.path for door in application.API]
    before, client = content(connection), console.client
    elsewhere = {"sec-fetch-site": "cross-site"}
    for method, headers, exported in (("GET", elsewhere, 403), ("HEAD", {}, 405)):
        answers = {
            path: client.request(method, re.sub(r"\{\w+\}", str(id), path), headers=headers).status_code
            for path in paths
        }
        assert answers["/api/v1/audit/export"] == exported
        assert answers["/ops/queue/audit/export"] == 405
        assert content(connection) == before
    assert client.get("/api/v1/audit/export").status_code == 200
    assert audit_counts(connection) == {"AUDIT_EXPORTED": 1}


def content(connection: Any) -> dict[str, Any]:
    """Every row of every table of ours, as one hash each."""
    tables = connection.execute("select relname from pg_class where relname like 'search_outbox_%' and relkind = 'r'")
    hashed = "select md5(coalesce(string_agg(t::text, '' order by t::text), '')) from {} t"
    return {name: connection.execute(hashed.format(name)).fetchone() for (name,) in tables.fetchall()}


def test_login_makes_a_strict_cookie_that_opens_pages_and_logout_ends_it(guarded: Served) -> None:
    client, same = guarded.client, {"sec-fetch-site": "same-origin"}
    asked = client.get("/ops/queue/failures?entity_type=x")
    assert asked.status_code == 303
    assert asked.headers["location"] == "/ops/queue/login?next=%2Fops%2Fqueue%2Ffailures%3Fentity_type%3Dx"
    answer = client.post(
        "/ops/queue/login", data={"token": TOKENS["viewer"], "next": "/ops/queue/failures?entity_type=x"}, headers=same
    )
    assert answer.headers["location"] == "/ops/queue/failures?entity_type=x"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKENS["viewer"] not in cookie
    assert client.get("/ops/queue").status_code == 200
    client.post("/ops/queue/logout", headers=same)
    assert client.get("/ops/queue").status_code == 303
    headers = {"origin": "https://ops.example", "host": "ops.example"}
    answer = guarded.client.post("/ops/queue/login", data={"token": TOKENS["viewer"]}, headers=headers)
    assert "Secure" in answer.headers["set-cookie"]
    assert guarded.as_("viewer").get("/api/v1/ops", headers={"host": "ops.example"}).status_code == 200


@pytest.mark.parametrize("elsewhere", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x"])
def test_login_leads_nowhere_else(guarded: Served, elsewhere: str) -> None:
    data = {"token": TOKENS["viewer"], "next": elsewhere}
    answer = guarded.client.post("/ops/queue/login", data=data, headers={"sec-fetch-site": "same-origin"})
    assert answer.headers["location"] == "/ops/queue"


def wrong(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.get("/api/v1/ops", headers={"authorization": "Bearer obx_wrong", **headers})


def login(client: httpx.Client, role: str, **headers: str) -> httpx.Response:
    data = {"token": TOKENS[role]}
    return client.post("/ops/queue/login", data=data, headers={"sec-fetch-site": "same-origin", **headers})


def test_wrong_bearer_tokens_are_slowed_down_as_logins_are(guarded: Served) -> None:
    vic, client = guarded.as_("viewer"), guarded.client
    assert {vic.get("/api/v1/ops").status_code for _ in range(12)} == {200}, "right ones do not count"
    answers = [wrong(client, **{"x-forwarded-for": f"203.0.113.{n}"}) for n in range(12)]
    assert [answer.status_code for answer in answers[:10]] == [401] * 10
    assert answers[11].status_code == 429, "nobody's word about another address is believed"
    assert int(answers[11].headers["retry-after"]) > 0
    assert login(client, "admin").status_code == 429, "the login guesses from the same allowance"
    assert vic.get("/api/v1/ops").status_code == 200, "a token that was right here is not held up by a neighbour"


def test_behind_a_trusted_proxy_each_client_has_a_pace_of_its_own(guarded_behind: Callable[[str], Served]) -> None:
    client = guarded_behind("127.0.0.0/8").client
    guesser, other = {"x-forwarded-for": "198.51.100.7, 203.0.113.1"}, {"x-forwarded-for": "203.0.113.2"}
    assert [wrong(client, **guesser).status_code for _ in range(12)][-1] == 429
    assert login(client, "viewer", **guesser).status_code == 429
    assert wrong(client, **{"x-forwarded-for": "192.0.2.9, 203.0.113.1"}).status_code == 429, "the left part is theirs"
    answer = login(client, "viewer", **other, **{"x-forwarded-proto": "https"})
    assert answer.status_code == 303
    assert "Secure" in answer.headers["set-cookie"]


def test_a_removed_line_ends_a_session_and_a_token_at_once(guarded: Served) -> None:
    client = guarded.client
    client.post("/ops/queue/login", data={"token": TOKENS["viewer"]}, headers={"sec-fetch-site": "same-origin"})
    assert client.get("/ops/queue").status_code == 200
    file: Path = guarded.app.state.settings.console.tokens_file
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("vic:")))
    assert client.get("/ops/queue").status_code == 303
    assert guarded.as_("viewer").get("/api/v1/ops").status_code == 401
    assert guarded.as_("admin").get("/api/v1/ops").status_code == 200


def test_every_answer_carries_the_security_headers(console: Served) -> None:
    client = console.client
    for path in ("/ops/queue", "/api/v1/ops", "/api/v1/nothing", "/nothing", "/static/console.css", "/healthz"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers


def test_payloads_are_for_operators_and_unmasking_for_admins_who_leave_a_trace(
    start_console: StartConsole, tmp_path: Path, connection: Any
) -> None:
    file = tmp_path / "tokens"
    import hashlib

    file.write_text("".join(f"{r}:{r}:{hashlib.sha256(t.encode()).hexdigest()}\n" for r, t in TOKENS.items()))
    served = start_console(OUTBOX_CONSOLE_TOKENS_FILE=str(file), OUTBOX_REDACT_FIELDS="email")
    (id,) = connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload) "
        """values ('a', '1', 'upsert', '{"email": "secret@example", "n": 12345678901234567890}') returning id"""
    ).fetchone()
    seen = {role: served.as_(role).get(f"/api/v1/events/{id}").text for role in TOKENS}
    assert "12345678901234567890" not in seen["viewer"]
    assert "12345678901234567890" in seen["operator"]
    assert not any("secret@example" in text for text in seen.values())
    pages = {role: served.as_(role).get(f"/ops/queue/events/{id}").text for role in TOKENS}
    assert "12345678901234567890" not in pages["viewer"]
    assert "12345678901234567890" in pages["admin"]
    assert not any("secret@example" in text for text in pages.values())
    same = {"sec-fetch-site": "same-origin"}
    unmask = f"/ops/queue/events/{id}/unmask"
    assert served.as_("operator").post(unmask, data={"reason": "look"}, headers=same).status_code == 403
    assert served.as_("admin").post(unmask, data={"reason": ""}, headers=same).status_code == 422
    assert connection.execute("select count(*) from search_outbox_audit").fetchone() == (0,)
    shown = served.as_("admin").post(unmask, data={"reason": "asked by support"}, headers=same)
    assert "secret@example" in shown.text
    row = connection.execute("select action, actor, role, source, reason, event_id from search_outbox_audit").fetchone()
    assert row == ("PAYLOAD_UNMASKED", "admin", "admin", "console", "asked by support", id)
    assert "secret@example" not in served.as_("admin").get(f"/ops/queue/events/{id}").text


def test_a_malformed_body_of_an_unauthenticated_client_is_a_401_and_not_read(guarded: Served) -> None:
    answer = guarded.client.post("/api/v1/failed/replay", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["title"] == "Unauthorized"


def test_a_form_that_does_not_say_where_it_comes_from_is_refused(console: Served) -> None:
    assert console.client.post("/ops/queue/pause", data=ACT).status_code == 403


def test_no_page_holds_inline_script_or_style(console: Served) -> None:
    client = console.client
    for door in application.PAGES:
        if door.method == "GET" and "{" not in door.path:
            text = client.get(door.path).text
            assert not re.search(r"<script(?![^>]*\bsrc=)", text), door.path
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), door.path
            assert "//cdn" not in text
            assert not re.search(r'(?:src|href)="https?://', text), door.path
