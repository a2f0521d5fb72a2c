"""`outbox console` as a process: where it may listen, tokens, signals, a database that is down."""

import json
import os
import sys
import urllib.request
from pathlib import Path

from tests.fixtures.processes import StartProcess, find_free_port, http_get
from tests.fixtures.waiting import PATIENCE_SECONDS

CONSOLE = [sys.executable, "-m", "outbox", "console"]


def test_it_refuses_to_listen_elsewhere_without_tokens(start_process: StartProcess, database: str) -> None:
    """Of which addresses that holds: tests/unit/config/test_derived.py."""
    process = start_process(CONSOLE, DATABASE_URL=database, OUTBOX_CONSOLE_HOST="0.0.0.0")
    assert process.wait() == 78
    assert "OUTBOX_CONSOLE_TOKENS_FILE" in process.output


def test_a_made_token_gives_access_and_only_its_hash_is_kept(
    start_process: StartProcess, database: str, elastic_url: str, tmp_path: Path
) -> None:
    file, port = tmp_path / "tokens", str(find_free_port())
    env = {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "OUTBOX_CONSOLE_TOKENS_FILE": str(file)}
    made = start_process([*CONSOLE, "token", "alice", "--role", "viewer", "--json"], **env)
    assert made.wait() == 0, made.output
    told = json.loads(made.output)
    assert told["token"] not in told["line"]
    file.write_text(f"{told['line']}\n")
    console = start_process([*CONSOLE, "--host", "0.0.0.0", "--port", port], **env)
    console.wait_for_line("console: http://0.0.0.0:")
    url = f"http://127.0.0.1:{port}/api/v1/ops"
    assert http_get(url)[0] == 401
    asked = urllib.request.Request(url, headers={"authorization": f"Bearer {told['token']}"})
    with urllib.request.urlopen(asked) as reply:
        assert reply.status == 200
    assert console.terminate() == 0
    assert told["token"] not in console.output


def test_it_starts_without_its_database_and_says_so_on_every_page(start_process: StartProcess) -> None:
    port = str(find_free_port())
    away = "postgresql://someone:a-secret-word@127.0.0.1:9/nothing"
    process = start_process([*CONSOLE, "--port", port], DATABASE_URL=away, OUTBOX_LOG_FORMAT="json")
    process.wait_for_line("console: ")
    status, text = http_get(f"http://127.0.0.1:{port}/ops/queue", timeout=PATIENCE_SECONDS)
    assert status == 503
    assert "The database does not answer" in text
    status, text = http_get(f"http://127.0.0.1:{port}/api/v1/ops", timeout=PATIENCE_SECONDS)
    assert status == 503
    assert json.loads(text)["title"] == "Service Unavailable"
    assert http_get(f"http://127.0.0.1:{port}/healthz")[0] == 200
    assert process.terminate() == 0
    assert "a-secret-word" not in process.output + text
    assert os.environ.get("DATABASE_URL") != away
