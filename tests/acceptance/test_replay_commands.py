"""`outbox-replay` and `outbox replays` as people use them: the guide's lab 5, a killed command, exit codes."""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox, refused
from tests.fixtures.console import Served
from tests.fixtures.depth import depth
from tests.fixtures.failures import audit_counts, events, statuses, value
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.starting import COLD

WHO = ("--by", "alice", "--reason", "fixed root cause")
REPLAY = [sys.executable, "-c", "from outbox.cli.replay import main; main()"]  # what `outbox-replay` runs


@pytest.fixture
def outbox(outbox_here: Outbox) -> Outbox:
    """A process of its own only where its signals are the point."""
    return outbox_here


def rows(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    query = "select to_jsonb(e) from search_outbox_events e order by id"
    return connection.execute(query).fetchall()


def moved(connection: psycopg.Connection) -> int:
    return value(connection, "select max(replayed) from search_outbox_replays")


def batches(outbox: Outbox) -> list[dict[str, Any]]:
    return list(outbox("replays", "list", "--json").json["replays"])


def test_lab_5_word_for_word(
    connection: psycopg.Connection, servers: dict[str, str], start_process: StartProcess, start_daemon: StartProcess,
    es: Elasticsearch, index: str,
) -> None:  # fmt: skip
    events(connection, 7, reason="unknown_exception")
    before = rows(connection)

    def replay(*more: str) -> RunningProcess:
        argv = [*REPLAY, "--by", "alice", "--reason", "fixed root cause", "--limit", "100", *more]
        started = start_process(argv, **servers)
        assert started.wait() == 0, started.output
        return started

    dry = replay("--dry-run")
    assert "7 events would be replayed" in dry.output
    assert rows(connection) == before
    assert audit_counts(connection) == {}
    assert connection.execute("select count(*) from search_outbox_replays").fetchone() == (0,)

    replay()
    assert statuses(connection) == {"pending": 7}
    cleared = connection.execute(
        "select distinct attempts, next_retry_at, error, error_reason, replay_count, last_replayed_by,"
        " last_replayed_reason, last_replayed_at is not null from search_outbox_events"
    ).fetchall()
    assert cleared == [(0, None, None, None, 1, "alice", "fixed root cause", True)]

    daemon = start_daemon()
    daemon.wait_until(lambda: statuses(connection) == {"done": 7}, "the replayed rows are done")
    assert es.get(index=index, id="block:e1")["_source"] == {"n": 1}
    assert daemon.terminate() == 0


def test_wait_exits_0_3_or_1_by_what_became_of_the_rows(
    connection: psycopg.Connection, outbox: Outbox, start_daemon: StartProcess
) -> None:
    daemon = start_daemon()
    events(connection, 2)
    whole = outbox("replay", *WHO, "--wait", "--json")
    assert (whole.code, whole.json["status"], whole.json["done"]) == (0, "settled", 2)
    events(connection, 1, prefix="good")
    (bad,) = events(connection, 1, prefix="bad", op="not-a-real-op")
    partly = outbox("replay", *WHO, "--wait", "--json")
    assert partly.code == 3, partly
    assert (partly.json["done"], partly.json["failed_again"]) == (1, 1)
    none = outbox("replay", *WHO, "--id", str(bad), "--wait")
    assert none.code == 1
    assert "1 failed again" in none.err
    assert daemon.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize("n", [depth(600, 2_000), pytest.param(20_000, marks=pytest.mark.long)])
def test_a_killed_command_is_taken_over_by_a_daemon_and_every_row_moves_once(
    connection: psycopg.Connection, servers: dict[str, str], outbox: Outbox, start_process: StartProcess,
    start_daemon: StartProcess, console: Served, n: int,
) -> None:  # fmt: skip
    events(connection, n)
    command = start_process([*COLD, "replay", *WHO, "--all", "--yes", "--rate", "500"], **servers)
    command.wait_until(lambda: moved(connection) >= n // 2, "half of the rows", within=180)
    command.kill()
    at_kill = moved(connection)
    assert n // 2 <= at_kill < n
    daemon = start_daemon()
    (batch,) = batches(outbox)
    daemon.wait_for_fact("replay.settled", within=300, batch=batch["id"])
    shown = outbox("replays", "show", batch["id"], "--json").json
    counts = {name: shown[name] for name in ("status", "total", "replayed", "skipped", "done", "failed_again")}
    assert counts == {
        "status": "settled", "total": n, "replayed": n, "skipped": 0, "done": n, "failed_again": 0
    }  # fmt: skip
    assert statuses(connection) == {"done": n}
    assert connection.execute("select distinct replay_count from search_outbox_events").fetchall() == [(1,)]
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": n, "REPLAY_BATCH_SUMMARY": 1}
    (detail,) = connection.execute(
        "select detail from search_outbox_audit where action = 'REPLAY_BATCH_SUMMARY'"
    ).fetchone() or (None,)
    assert {name: detail[name] for name in ("total", "replayed", "done")} == {
        "total": n, "replayed": n, "done": n
    }  # fmt: skip
    page = console.client.get(f"/api/v1/replays/{batch['id']}").json()
    assert {name: page[name] for name in counts} == counts, "the console agrees"
    print(f"killed after {at_kill:,} of {n:,} rows; a daemon moved the rest; summary {json.dumps(detail)}")
    assert daemon.terminate() == 0


def test_a_plan_applies_exactly_its_ids_and_only_once(
    connection: psycopg.Connection, outbox: Outbox, tmp_path: Path
) -> None:
    planned = events(connection, 3)
    file = tmp_path / "plan.json"
    made = outbox("replay", "--plan-out", str(file), "--json")
    assert made.code == 0
    assert made.json["total"] == 3
    assert made.json["superseded"] == 0
    assert statuses(connection) == {"failed": 3}
    events(connection, 2, prefix="later")
    applied = outbox("replay", "--plan", str(file), *WHO, "--json")
    assert (applied.code, applied.json["replayed"]) == (0, 3)
    moved = connection.execute("select id from search_outbox_events where status = 'pending'").fetchall()
    assert {row[0] for row in moved} == set(planned)
    connection.execute("update search_outbox_events set status = 'failed' where status = 'pending'")
    again = outbox("replay", "--plan", str(file), *WHO, "--json")
    assert again.json["id"] == applied.json["id"]
    assert "nothing is done twice" in again.err
    assert statuses(connection) == {"failed": 5}
    refused(outbox("replay", "--plan", str(file), "--limit", "2", *WHO), 2, "--plan holds its ids itself")
    file.write_text("{}")
    refused(outbox("replay", "--plan", str(file), *WHO), 2, "no plan")


def test_a_dry_run_says_what_is_superseded_in_elasticsearch(
    connection: psycopg.Connection, outbox: Outbox, es: Elasticsearch, index: str
) -> None:
    events(connection, 3)
    es.index(index=index, id="block:e2", document={"n": 2}, version=99, version_type="external_gte")
    es.index(index=index, id="block:e3", document={"n": 3}, version=3, version_type="external_gte")
    made = outbox("replay", "--dry-run", "--json").json
    assert (made["superseded"], made["compared"]) == (1, 3)
    assert made["by_entity_type"] == {"block": 3}
    assert made["by_error_reason"] == {"es_rejected_document": 3}
    assert made["by_fingerprint"] == {"00ff00ff00ff00ff": 3}
    assert len(made["sample"]) == 3
    chosen = outbox("replay", "--dry-run", "--json", "--id", made["sample"][0]["id"]).json
    assert (chosen["total"], chosen["by_entity_type"]) == (1, {"block": 1})
    away = outbox("replay", "--dry-run", ELASTIC_URL="http://127.0.0.1:1")
    assert away.code == 0
    assert "the search server does not answer" in away.out


def test_a_batch_whose_rows_never_end_times_out_and_wait_exits_3(
    connection: psycopg.Connection, outbox: Outbox
) -> None:
    events(connection, 2)
    called = outbox("replay", *WHO, "--wait", "--json", OUTBOX_REPLAY_MAX_POLLS="1")
    assert called.code == 3
    assert (called.json["status"], called.json["reason"]) == ("timeout", "MAX_POLL_COUNT_REACHED:1")
    assert called.json["still_open"] == 2
    cancelled = outbox("replays", "cancel", called.json["id"], "--by", "bob", "--reason", "again")
    refused(cancelled, 1, "is over: timeout")


def test_many_rows_are_asked_for_and_nobody_to_ask_needs_yes(connection: psycopg.Connection, outbox: Outbox) -> None:
    events(connection, 1_001)
    refused(outbox("replay", *WHO, "--limit", "1001"), 2, "--yes", "1,001 events")
    refused(outbox("replay", *WHO, "--all"), 2, "--yes")
    assert statuses(connection) == {"failed": 1_001}
    assert outbox("replay", *WHO, "--limit", "1000").code == 0
    assert outbox("replay", *WHO, "--all", "--yes").code == 0
    assert statuses(connection) == {"pending": 1_001}


def test_bad_input_is_exit_2_and_changes_nothing(
    connection: psycopg.Connection, outbox_here: Outbox, tmp_path: Path
) -> None:
    events(connection, 2)
    before = rows(connection)
    many = tmp_path / "ids"
    many.write_text("\n".join(str(uuid4()) for _ in range(501)))
    refused(outbox_here("replay", *WHO, "--id", str(uuid4())), 2, "No event is in a state")
    refused(outbox_here("replay", *WHO, "--id", "not-a-uuid"), 2, "--id", "not a uuid")
    refused(outbox_here("replay", *WHO, "--limit", "0"), 2, "limit")
    refused(outbox_here("replay", *WHO, "--ids-file", str(many)), 2, "501 ids")
    refused(outbox_here("replay", "--by", "alice"), 2, "--reason")
    refused(outbox_here("replay", "--reason", "x"), 2, "--by")
    refused(outbox_here("replay", "--by", "alice", "--reason", "x" * 10_240), 2, "reason", "1,000 at most")
    refused(outbox_here("replay", *WHO, "--all", "--limit", "3"), 2, "--all")
    refused(outbox_here("replay", *WHO, "--webhook", "https://evil.example/"), 2, "OUTBOX_WEBHOOK_ALLOWED_HOSTS")
    refused(outbox_here("replays", "list", "--after", "forged"), 2, "cursor")
    assert outbox_here("replays", "show", str(uuid4())).code == 1
    assert rows(connection) == before
    assert audit_counts(connection) == {}
