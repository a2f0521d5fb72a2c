"""Each part with its own role and no more: the daemon as projector, commands as operator, the console as reader."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.web import application, routing
from tests.fixtures.audits import age_audit
from tests.fixtures.commands import Outbox
from tests.fixtures.console import StartConsole, post, tokens_file
from tests.fixtures.failures import audit_counts, events, statuses
from tests.fixtures.processes import StartProcess
from tests.fixtures.roles import Roles

WHO = ("--by", "alice", "--reason", "why not")
VIEW = (
    "create view search_documents as select 'seen'::text as entity_type, '1'::text as entity_id,"
    " '{\"t\": 1}'::json as document"
)


def test_the_daemon_does_all_its_work_as_projector(
    roles: Roles,
    connection: psycopg.Connection[Any],
    start_daemon: StartProcess,
    outbox: Outbox,
    es: Elasticsearch,
    index: str,
) -> None:
    connection.execute(VIEW)
    connection.execute("select search_outbox_grant_roles()")
    events(connection, 3, status="done", prefix="old", age="10 days", entity_type="seen")
    connection.execute("insert into search_outbox_entity_types values ('seen', 'view', 'ours', false, 'test')")
    (given_up,) = events(connection, prefix="again")
    called = outbox("replay", "--id", str(given_up), *WHO, DATABASE_URL=roles.url("operator"))
    assert called.code == 0, called.err
    with roles.connect("producer") as producer:
        producer.execute("select outbox_enqueue('article', '1', 'upsert', '{\"t\": 1}')")
        producer.execute("select outbox_enqueue('seen', '1', 'upsert')")
        producer.execute("select outbox_enqueue('article', '2', 'delete')")
        producer.execute(
            "insert into search_outbox_events (entity_type, entity_id, op) values ('a', '3', 'no-such-op')"
        )
    daemon = start_daemon(
        DATABASE_URL=roles.url("projector"),
        OUTBOX_RETENTION_DAYS="5",
        OUTBOX_PRUNE_INTERVAL_SECONDS="1",
        OUTBOX_LISTEN="true",
        OUTBOX_LOG_LEVEL="debug",
    )
    daemon.wait_until(lambda: statuses(connection) == {"done": 4, "failed": 1}, "every event's end, old ones pruned")
    assert es.get(index=index, id="seen:1")["_source"] == {"t": 1}
    # The command that replayed is gone: the daemon follows its batch to the end and writes the summary.
    daemon.wait_until(lambda: audit_counts(connection).get("REPLAY_BATCH_SUMMARY"), "the replay's end")
    daemon.wait_for_http("/readyz")
    assert daemon.terminate() == 0
    assert "permission denied" not in daemon.output
    assert not [fact for fact in daemon.facts() if fact["level"] == "error"]


def test_a_daemon_with_too_few_rights_says_which_and_touches_nothing(
    roles: Roles, connection: psycopg.Connection[Any], start_daemon: StartProcess
) -> None:
    connection.execute("insert into search_outbox_events (entity_type, entity_id, op) values ('a', '1', 'upsert')")
    daemon = start_daemon("--no-wait", DATABASE_URL=roles.url("reader"))
    assert daemon.wait() == 78
    assert "permission denied for function search_outbox_catch_up" in daemon.output
    assert "docs/security.md" in daemon.output
    assert roles.password not in daemon.output
    assert statuses(connection) == {"pending": 1}


COMMANDS = [
    ("status", "--json"),
    ("list", "--json"),
    ("show", "{failed}", "--json"),
    ("stats", "--json"),
    ("doctor", "--json"),
    ("pause", *WHO),
    ("resume", *WHO),
    ("replay", "--id", "{failed}", *WHO, "--dry-run"),
    ("replay", "--id", "{failed}", *WHO),
    ("replays", "list", "--json"),
    ("discard", "{other}", *WHO, "--yes"),
    ("flush", *WHO, "--fingerprint", "00ff00ff00ff00ff", "--expect", "1", "--approved-by", "bob", "--yes"),
    ("audit", "list", "--json"),
    ("audit", "export", "--by", "alice"),
    ("audit", "verify"),
    ("prune", "--by", "alice", "--older-than-days", "5", "--yes"),
    ("audit", "prune", "--older-than-days", "7", "--by", "alice", "--yes"),
    ("audit", "verify"),
    ("verify", "--json"),
]


def test_every_command_of_people_works_as_operator(
    roles: Roles, connection: psycopg.Connection[Any], outbox_here: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute(VIEW)
    connection.execute("select search_outbox_grant_roles()")
    failed, other, _ = map(str, events(connection, 3))
    events(connection, 2, status="done", prefix="old", age="10 days")
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'old', 'cli')")
    age_audit(connection)
    monkeypatch.setenv("DATABASE_URL", roles.url("operator"))
    for command in COMMANDS:
        argv = [part.format(failed=failed, other=other) for part in command]
        called = outbox_here(*argv)
        allowed = (0, 1) if argv[0] == "doctor" else (0, 1, 3) if argv[0] == "verify" else (0,)
        assert called.code in allowed, (argv, called)
        assert "permission denied" not in called.out + called.err, argv
    assert statuses(connection)["discarded"] == 2
    assert audit_counts(connection)["AUDIT_PRUNE_SUMMARY"] == 1


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    return str(tokens_file(tmp_path))


def test_a_console_as_reader_shows_every_page_without_payloads(
    roles: Roles, connection: psycopg.Connection[Any], start_console: StartConsole, tokens: str
) -> None:
    (failed,) = events(connection)
    replay = connection.execute(
        "insert into search_outbox_replays (requested_by, requested_reason) values ('a', 'b') returning id"
    ).fetchone()
    assert replay is not None
    console = start_console(DATABASE_URL=roles.url("reader"), OUTBOX_CONSOLE_TOKENS_FILE=tokens)
    client = console.as_("operator")  # who would see payloads, were it not for the database
    doors = [(routing.API_PREFIX, door) for door in application.API] + [("", door) for door in application.PAGES]
    for prefix, door in doors:
        if door.method == "GET" and not door.path.endswith("/export"):  # an export is written down, so it is an act
            ids = {"id": replay[0] if "replays" in door.path else failed, "entity_type": "article", "entity_id": "1"}
            path = prefix + door.path.format(**ids)
            answer = client.get(path, follow_redirects=True)
            assert answer.status_code == 200, (path, answer.text[:500])
    shown = client.get(f"/api/v1/events/{failed}").json()
    assert shown["payload"] == {"***": "this database role may not read payloads"}
    page = client.get(f"/ops/queue/events/{failed}").text
    assert "may not read payloads" in page
    assert '"n": 1' not in page


ACTS = [
    ("operator", "/events/{id}/replay", {"by": "x", "reason": "y"}),
    ("admin", "/audit/prune", {"older_than_days": 7, "by": "x", "reason": "y"}),
]


@pytest.mark.parametrize(("person", "path", "body"), ACTS, ids=[row[1] for row in ACTS])
def test_a_button_of_a_console_as_reader_is_refused_by_the_database(
    roles: Roles,
    connection: psycopg.Connection[Any],
    start_console: StartConsole,
    tokens: str,
    person: str,
    path: str,
    body: dict[str, Any],
) -> None:
    (failed,) = events(connection)
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('RESUMED', 'a', 'cli')")
    age_audit(connection)
    console = start_console(DATABASE_URL=roles.url("reader"), OUTBOX_CONSOLE_TOKENS_FILE=tokens)
    answer = post(console.as_(person), path.format(id=failed), body)
    assert answer.status_code == 403, answer.text
    assert "role lacks a privilege" in answer.json()["detail"]
    assert statuses(connection) == {"failed": 1}
    assert audit_counts(connection) == {"RESUMED": 1}
