"""Hostile text through arguments and rows: a clear exit code, and nothing that steers the terminal."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.commands import Outbox as Command
from tests.fixtures.commands import call_here
from tests.fixtures.failures import events
from tests.fixtures.hostile import CONTROL, HOSTILE, TEXTS, dealt
from tests.fixtures.postgres import fresh_database

ARGUMENTS = [
    ("list", "--entity-type"), ("list", "--entity-id"), ("list", "--status"), ("list", "--since"), ("list", "--id"),
    ("list", "--fingerprint"), ("list", "--limit"), ("list", "--after"), ("show",), ("stats", "--hours"),
    ("replay", "--by", "a", "--reason"), ("replay", "--reason", "r", "--by"),
    ("replay", "--by", "a", "--reason", "r", "--limit"), ("replay", "--by", "a", "--reason", "r", "--webhook"),
    ("replay", "--by", "a", "--reason", "r", "--ids-file"), ("replay", "--by", "a", "--reason", "r", "--plan"),
    ("discard",), ("replays", "show"), ("replays", "cancel"),
    ("pause", "--by", "a", "--reason"), ("pause", "--by", "a", "--reason", "r", "--entity-type"),
    ("resume", "--by", "a", "--reason", "r", "--let-fail"), ("audit", "list", "--action"), ("audit", "list", "--actor"),
    ("audit", "export", "--by", "a", "--format"), ("explain-error",), ("attach",), ("detach",), ("index", "check"),
    ("webhook", "verify", "--secret"), ("wait", "--timeout"), ("migrate", "--"), ("config", "print", "--"),
    ("no-such",),
]  # fmt: skip


@pytest.fixture(scope="module")
def one_event(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """A database of all these tests: a fresh one for each would take as long as the commands."""
    with fresh_database(postgres_url, migrated_template) as url, psycopg.connect(url, autocommit=True) as connection:
        events(connection, 1)
        yield url


@pytest.mark.parametrize("what", [name for name in TEXTS if name != "NUL"])  # no program can be given one
def test_the_command_line_takes_hostile_text(
    one_event: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", one_event)
    monkeypatch.setenv("ELASTIC_URL", "http://127.0.0.1:9")  # nobody answers, at once
    for argv in dealt(ARGUMENTS, what):
        called = call_here((*argv, HOSTILE[what]), capsys)
        assert called.code in (0, 1, 2, 3, 75, 78), (argv, called)
        assert "Traceback" not in called.err, (argv, called.err)
        assert not CONTROL.search(called.out), (argv, called.out)
        assert not CONTROL.search(called.err), (argv, called.err)


def test_hostile_rows_are_shown_as_text_by_every_command(
    outbox_here: Command, connection: psycopg.Connection[Any]
) -> None:
    texts = [text for text in HOSTILE.values() if "\x00" not in text and "\udcff" not in text and len(text) < 1_000]
    for text in texts:
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, routing, owner, error_reason, error,"
            " traceparent, status, last_replayed_by, last_replayed_reason, payload)"
            " values (%(t)s, %(t)s, %(t)s, %(t)s, %(t)s, %(t)s, %(t)s,"
            " %(t)s, 'failed', %(t)s, %(t)s, to_json(%(t)s::text))",
            {"t": text},
        )
        connection.execute(
            "insert into search_outbox_audit (action, actor, source, reason, entity_type, entity_id)"
            " values ('PAUSED', %(t)s, 'cli', %(t)s, %(t)s, %(t)s)",
            {"t": text},
        )
        connection.execute(
            "insert into search_outbox_workers (worker_id, start_id, host, version, state)"
            " values (%(t)s, gen_random_uuid(), %(t)s, %(t)s, %(t)s)",
            {"t": text},
        )
    ids = [str(id) for (id,) in connection.execute("select id from search_outbox_events")]
    commands = [["list", "--limit", "500"], ["status"], ["stats"], ["audit", "list", "--limit", "500"], ["doctor"]]
    commands += [["show", id] for id in ids]
    for argv in commands:
        called = outbox_here(*argv)
        assert "Traceback" not in called.err, (argv, called.err)
        assert not CONTROL.search(called.out + called.err), (argv, CONTROL.findall(called.out + called.err))
        if argv[0] != "doctor":
            assert called.code == 0, (argv, called)
    for argv in commands:
        machine = outbox_here(*argv, "--json")
        json.loads(machine.out)
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", machine.out), argv
