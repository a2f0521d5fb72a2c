"""Secrets and documents planted everywhere, servers that quote them back, and not one of them in anything we say."""

import base64
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.fixtures.commands import Called, call, call_here
from tests.fixtures.console import console_process
from tests.fixtures.failures import statuses
from tests.fixtures.processes import RunningProcess, StartProcess, find_free_port
from tests.fixtures.receivers import receiver
from tests.fixtures.scripted import Answer, Request, answer, scripted
from tests.fixtures.waiting import PATIENCE_SECONDS

# With the characters that break naive redaction: blanks cannot stand in a DSN, everything else can.
DB_PASSWORD = "canary-db/p@ss:w%rd'=" + secrets.token_hex(4)
API_KEY = base64.b64encode(b"canary-key-id:canary-api-key-" + secrets.token_hex(4).encode()).decode()
ES_PASSWORD = "canary-es-password " + secrets.token_hex(4)
HOOK_SECRET = "whsec_" + base64.b64encode(b"canary-hook-secret-" + secrets.token_hex(4).encode()).decode()
HOOK_PATH = "canary-hook-path-" + secrets.token_hex(4)
TOKEN = "obx_canary-token-" + secrets.token_hex(8)
DOCUMENT = "canary-document-" + secrets.token_hex(4)
MASKED = "canary-masked-" + secrets.token_hex(4)
# A tracing SDK as a user would install it, writing every span where the test can read it.
TRACED = (
    "import sys; from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
    "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor;"
    "p = TracerProvider(); p.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()));"
    "trace.set_tracer_provider(p); from outbox.cli import main; sys.argv[1:] = {argv!r}; main()"
)


def spellings(secret: str) -> set[str]:
    """As it is, as an address has it, as a log line or a page escapes it, as basic authentication sends it."""
    found = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    found |= {secret.replace("'", "&#39;"), secret.replace("'", "''"), secret.replace("'", "\\'")}
    return found | {base64.b64encode(each.encode()).decode() for each in (secret, f"elastic:{secret}")}


@dataclass
class Heard:
    """Everything that was said, by where; `clean` searches for the canaries in it."""

    said: list[tuple[str, str]] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        self.said.append((where, text))

    def clean(self, *canaries: str) -> None:
        found = [
            (where, canary[:14], text[max(0, text.find(spelling) - 120) :][:300])
            for where, text in self.said
            for canary in canaries
            for spelling in spellings(canary)
            if spelling in text
        ]
        assert not found, found
        assert sum(len(text) for _, text in self.said) > 300, "nothing was heard: nothing was shown"


EVERYTHING = (DB_PASSWORD, API_KEY, ES_PASSWORD, HOOK_SECRET, HOOK_PATH, TOKEN, DOCUMENT, MASKED)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def secret_database(database: str, connection: psycopg.Connection[Any]) -> Iterator[str]:
    """This test's database by a role whose password is a canary."""
    role = sql.Identifier(f"{connection.info.dbname}_canary")
    connection.execute(sql.SQL("create role {} login superuser password {}").format(role, sql.Literal(DB_PASSWORD)))
    host = database.rpartition("@")[2]
    yield f"postgresql://{connection.info.dbname}_canary:{quote(DB_PASSWORD, safe='')}@{host}"
    connection.execute(sql.SQL("drop role {}").format(role))


def enqueue(connection: psycopg.Connection[Any]) -> None:
    """Documents that Elasticsearch refuses while it quotes them, and one that it takes."""
    body = {"title": DOCUMENT, "password": MASKED}
    for id, more in (("1", {}), ("2", {"n": DOCUMENT}), ("3", {"d": DOCUMENT}), ("4", {"o": {"x": {"y": DOCUMENT}}})):
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload, traceparent)"
            " values ('article', %s, 'upsert', %s, '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01')",
            [id, json.dumps({**body, **more})],
        )
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload) values ('article', '5', %s, %s)",
        ["no-such-op", json.dumps(body)],
    )


def environment(database: str, elastic_url: str, index: str, hook: str, **more: str) -> dict[str, str | None]:
    return {
        "DATABASE_URL": database,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": index,
        "ELASTIC_API_KEY": API_KEY,
        "OUTBOX_WEBHOOK_URL": hook.replace("/hook", f"/{HOOK_PATH}"),
        "OUTBOX_WEBHOOK_SECRET": HOOK_SECRET,
        "OUTBOX_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
        "OUTBOX_REDACT_FIELDS": "password",
        "OUTBOX_LOG_LEVEL": "debug",
        "OUTBOX_METRICS_PORT": str(find_free_port()),
        **more,
    }


def listen_to(daemon: RunningProcess, heard: Heard) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        heard.add(f"daemon {path}", daemon.wait_for_http(path))


# What a table must hold to do its work: a document is the producer's own, and what is to be sent needs its address.
# No page, command or line shows either address beyond its host.
KEPT = {
    "search_outbox_events": "payload",
    "search_outbox_webhook_deliveries": "url",
    "search_outbox_replays": "webhook_url",
}


def listen_to_tables(connection: psycopg.Connection[Any], heard: Heard) -> None:
    """Every row of ours as text, every column but those of KEPT."""
    names = [name for (name,) in connection.execute("select tablename from pg_tables where schemaname = 'public'")]
    assert KEPT.keys() <= set(names)
    for name in names:
        query = sql.SQL("select (to_jsonb(t) - {}::text)::text from {} t")
        rows = connection.execute(query.format(KEPT.get(name, ""), sql.Identifier(name)))
        heard.add(f"table {name}", "\n".join(text for (text,) in rows))


def test_a_daemon_among_refused_documents_and_a_failing_webhook_says_nothing_secret(
    start_process: StartProcess,
    secret_database: str,
    connection: psycopg.Connection[Any],
    elastic_url: str,
    es: Any,
    index: str,
    heard: Heard,
    say: Callable[..., Called],
) -> None:
    kinds = {"n": {"type": "integer"}, "d": {"type": "date"}, "o": {"properties": {"x": {"type": "ip"}}}}
    es.indices.put_mapping(index=index, properties=kinds)
    enqueue(connection)
    with receiver(500) as hook:
        env = environment(secret_database, elastic_url, index, hook.url, OUTBOX_LOG_FORMAT="json")
        daemon = start_process([sys.executable, "-c", TRACED.format(argv=["run"])], **env)
        daemon.wait_until(lambda: statuses(connection) == {"done": 1, "failed": 4}, "every event's end")
        daemon.wait_until(lambda: hook.got, "a webhook")
        assert "webhook-signature" in hook.got[0][0]
        listen_to(daemon, heard)
        assert daemon.terminate() == 0
    heard.add("daemon log", daemon.output)
    assert "outbox.batch" in daemon.output, "no span was written"
    assert "es_rejected_document" in daemon.output
    for (id,) in connection.execute("select id::text from search_outbox_events where status = 'failed'").fetchall():
        for command in (("explain-error", "--id", id), ("explain-error", "--id", id, "--json")):
            called = say(env, *command)
            assert called.code == 0, called
            heard.add(" ".join(command), called.out + called.err)
    listen_to_tables(connection, heard)
    heard.clean(*EVERYTHING)


def parrot(request: Request) -> Answer:
    """A server, or a proxy before it, that quotes the whole request in its error."""
    quoted = f"{request.headers.get('authorization')} {request.body.decode(errors='replace')}"
    error = {"type": "illegal_argument_exception", "reason": f"cannot do [{quoted}] for input string: {quoted}"}
    return answer(400, json.dumps({"error": error, "status": 400}).encode())


def parrot_items(request: Request) -> Answer:
    """The same for each item, under a status that is tried again."""
    lines = [line for line in request.body.split(b"\n") if line][1::2]
    authorization = request.headers.get("authorization")
    items = [
        {"index": {"status": 503, "error": {"type": "odd_exception", "reason": f"{authorization} '{line.decode()}'"}}}
        for line in lines
    ]
    return answer(200, json.dumps({"errors": True, "items": items}).encode())


@pytest.mark.parametrize("reply", [parrot, parrot_items], ids=["request", "items"])
def test_a_server_that_quotes_the_request_is_not_quoted(
    start_process: StartProcess,
    secret_database: str,
    connection: psycopg.Connection[Any],
    heard: Heard,
    reply: Any,
) -> None:
    enqueue(connection)
    connection.execute("delete from search_outbox_events where op <> 'upsert'")
    with scripted(reply) as server:
        env = environment(secret_database, server.url, "things", "http://127.0.0.1:1/hook")
        daemon = start_process([sys.executable, "-m", "outbox", "run"], **env, OUTBOX_LOG_FORMAT="json")
        daemon.wait_until(lambda: server.bulks and (daemon.facts("sink.paused") or _noted(connection)), "a refusal")
        listen_to(daemon, heard)
        assert any("canary" in text or "Basic" in text for text in _sent(server.bulks)), "nothing secret was sent"
        assert daemon.terminate() == 0
        called = call("doctor", env=env)
        heard.add("doctor", called.out + called.err)
    heard.add("daemon log", daemon.output)
    listen_to_tables(connection, heard)
    heard.clean(*EVERYTHING)


def _noted(connection: psycopg.Connection[Any]) -> bool:
    query = "select count(*) from search_outbox_events where error is not null"
    return connection.execute(query).fetchone() != (0,)


def _sent(bulks: list[Request]) -> list[str]:
    return [f"{request.headers.get('authorization')} {request.body.decode()}" for request in bulks]


COMMANDS = [
    ("config", "print"), ("config", "print", "--json"), ("config", "check"), ("status", "--json"), ("list", "--json"),
    ("list", "--status", "failed"), ("stats", "--json"), ("doctor", "--json"), ("migrate", "status", "--json"),
    ("audit", "list", "--json"), ("replays", "list", "--json"), ("webhook", "test", "--by", "alice"),
    ("webhook", "test"), ("replay", "--by", "alice", "--reason", "x", "--dry-run"), ("index", "check"), ("verify",),
    ("verify", "--json"), ("repair", "--dry-run"), ("repair", "--dry-run", "--json"), ("rebuild", "--status"),
    ("rebuild", "--status", "--json"), ("audit", "export", "--by", "alice", "--format", "csv"),
    ("audit", "export", "--by", "alice", "--format", "ndjson"), ("audit", "verify"), ("no-such-command",),
]  # fmt: skip
# Two documents to compare: one differs from the index in a field that holds a canary, one is missing there.
VIEW = (
    "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
    " jsonb_build_object('title', {document}, 'password', {masked})::json as document"
    " from unnest(array['1', '2']) id"
)
AWAY = "postgresql://someone:{password}@127.0.0.1:1/nothing"


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    """`say(env, "config", "print")`: a command in this process, with this environment alone."""

    def run(env: dict[str, str | None], *command: str) -> Called:
        for name in [name for name in os.environ if name.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))]:
            monkeypatch.delenv(name)
        for name, value in env.items():
            if value is not None:
                monkeypatch.setenv(name, value)
        return call_here(command, capsys)

    return run


def test_commands_say_nothing_secret_whether_servers_are_there_or_away(
    secret_database: str,
    connection: psycopg.Connection[Any],
    elastic_url: str,
    es: Any,
    index: str,
    heard: Heard,
    say: Callable[..., Called],
) -> None:
    enqueue(connection)
    connection.execute("update search_outbox_events set status = 'failed', error = 'x'")
    connection.execute(sql.SQL(VIEW).format(document=sql.Literal(DOCUMENT), masked=sql.Literal(MASKED)))
    edited = {"title": f"{DOCUMENT} by hand", "password": f"{MASKED} by hand"}
    es.index(index=index, id="article:1", document=edited, version=7, version_type="external_gte", refresh=True)
    for url in (secret_database, AWAY.format(password=quote(DB_PASSWORD, safe=""))):
        env = environment(url, elastic_url, index, "http://127.0.0.1:1/hook")
        for command in COMMANDS if url == secret_database else COMMANDS[:8]:
            called = say(env, *command)
            heard.add(" ".join(command), called.out + called.err)
            assert "Traceback" not in called.err, called.err
            if command == ("verify", "--json") and url == secret_database:
                assert (called.json["different"], called.json["missing"]) == (1, 1), called
    (id,) = connection.execute("select id::text from search_outbox_events where entity_id = '1'").fetchone() or ("",)
    env = environment(secret_database, elastic_url, index, "http://127.0.0.1:1/hook")
    shown = say(env, "show", id)
    assert DOCUMENT in shown.out, "a payload is what `show` is for"
    heard.clean(*EVERYTHING)
    heard.add("show", shown.out + shown.err)
    heard.clean(*(canary for canary in EVERYTHING if canary != DOCUMENT))


def test_the_console_and_its_log_show_nothing_secret(
    start_process: StartProcess,
    secret_database: str,
    connection: psycopg.Connection[Any],
    elastic_url: str,
    index: str,
    tmp_path: Path,
    heard: Heard,
) -> None:
    enqueue(connection)
    connection.execute(
        "update search_outbox_events set status = 'failed', error = 'x', error_fingerprint = '00ff00ff00ff00ff'"
    )
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada:admin:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    env = environment(
        secret_database, elastic_url, index, "http://127.0.0.1:1/hook", OUTBOX_CONSOLE_TOKENS_FILE=str(tokens)
    )
    (id,) = connection.execute("select id::text from search_outbox_events where entity_id = '1'").fetchone() or ("",)
    with console_process(start_process, env) as (process, url):
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            wrong = client.post("/ops/queue/login", data={"token": f"{TOKEN}x"}, headers={"origin": url})
            heard.add("wrong login", wrong.text + str(wrong.headers))
            right = client.post("/ops/queue/login", data={"token": TOKEN}, headers={"origin": url})
            heard.add("login", right.text + str(right.headers))
            pages = (
                "", "/failures", "/failures/list", "/events", "/replay", "/replays", "/audit", "/webhooks",
                "/system", "/failures/list?fingerprint=00ff00ff00ff00ff", "/replay?fingerprint=00ff00ff00ff00ff",
            )  # fmt: skip
            for page in (*(f"/ops/queue{page}" for page in pages), "/ops/verify"):
                got = client.get(page)
                assert got.status_code == 200, (page, got.status_code)
                heard.add(f"page {page}", got.text + str(got.headers))
            exported = client.post("/ops/queue/audit/export?format=csv", headers={"origin": url})
            assert exported.status_code == 200
            heard.add("page export", exported.text + str(exported.headers))
        bearer = {"authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=PATIENCE_SECONDS, headers=bearer) as api:
            paths = (
                "/ops", "/events", "/failed", "/failed/groups", "/stats", "/audit", "/webhooks/deliveries",
                "/failed/preview?fingerprint=00ff00ff00ff00ff", "/nothing",
            )  # fmt: skip
            for path in paths:
                heard.add(f"api {path}", api.get(path).text)
            bad = api.post("/failed/replay", json={"by": "a", "reason": "b", "webhook_url": f"http://h/{HOOK_PATH}"})
            heard.add("api refused", bad.text)
            one = api.get(f"/events/{id}")
            assert DOCUMENT in one.text
            heard.add("api event", one.text.replace(DOCUMENT, ""))
            event_page = api.get(f"{url}/ops/queue/events/{id}")
            heard.add("event page", event_page.text.replace(DOCUMENT, ""))
            # A replay that tells an address of its own: what is shown of it afterwards, and what exports say.
            hook = f"http://127.0.0.1:1/{HOOK_PATH}"
            asked = {"by": "a", "reason": "b", "ids": [id], "webhook_url": hook}
            replay = api.post("/failed/replay", json=asked)
            assert replay.status_code == 202, replay.text
            heard.add("api replay", replay.text)
            replayed = replay.json()["id"]
            for path in (
                "/replays",
                f"/replays/{replayed}",
                "/audit/export?format=csv",
                "/audit/export?format=json",
                "/audit/export?format=ndjson",
                f"{url}/ops/queue/replays",
                f"{url}/ops/queue/replays/{replayed}",
            ):
                got = api.get(path)
                assert got.status_code == 200, (path, got.status_code)
                heard.add(f"after a replay {path}", got.text + str(got.headers))
    heard.add("console log", process.output)
    listen_to_tables(connection, heard)
    heard.clean(*EVERYTHING)
