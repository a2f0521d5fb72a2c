"""`audit`, `discard`, `flush`, `prune`, `stats` and `webhook` as commands, and the chores of a real daemon."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from outbox.policy.webhook import headers, verify
from tests.fixtures.audits import age_audit
from tests.fixtures.commands import Outbox, refused
from tests.fixtures.failures import audit_counts, events, statuses
from tests.fixtures.processes import StartProcess
from tests.fixtures.receivers import Receiver, receive

__all__ = ["receive"]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
Receive = Callable[..., Receiver]
VIEW = (
    "create view search_documents as select 'x'::text as entity_type, 'y'::text as entity_id, '{}'::json as document;"
    " insert into search_outbox_entity_types (entity_type, kept_by, declared_by) values ('block', 'view', 'test')"
)


@pytest.fixture
def outbox(outbox_here: Outbox) -> Outbox:
    """Here no process of its own is the point; the daemons are."""
    return outbox_here


def test_the_audit_is_listed_exported_pruned_and_verified(
    connection: psycopg.Connection, outbox: Outbox, tmp_path: Path
) -> None:
    events(connection, 3)
    assert outbox("replay", "--by", "=cmd()", "--reason", "<script>").code == 0
    listed = outbox("audit", "list", "--action", "REPLAY_BATCH_ITEM", "--json").json
    assert [row["actor"] for row in listed["rows"]] == ["=cmd()"] * 3
    assert listed["rows"][0]["detail"] == {"replay_count": 1}
    assert "=cmd()" in outbox("audit", "list").out

    table = outbox("audit", "export", "--by", "alice", "--format", "csv").out
    assert [row["actor"] for row in csv.DictReader(table.splitlines())] == ["'=cmd()"] * 3
    lines = outbox("audit", "export", "--by", "alice").out.splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["=cmd()"] * 3 + ["alice"]
    refused(outbox("audit", "export", "--by", "alice", "--format", "xlsx"), 2, "format")
    refused(outbox("audit", "list", "--action", "NONSENSE"), 2, "action")
    refused(outbox("audit", "list", "--since", "yesterday"), 2, "ISO 8601")

    age_audit(connection)
    assert outbox("audit", "verify").code == 0
    refused(outbox("audit", "prune", "--older-than-days", "6.9", "--by", "bob"), 2, "--older-than-days")
    prune = ("audit", "prune", "--older-than-days", "7", "--by", "bob", "--action", "REPLAY_BATCH_ITEM")
    assert outbox(*prune, "--dry-run", "--json").json["removed"] == 3
    refused(outbox(*prune), 2, "--yes")
    archive = tmp_path / "old.ndjson"
    pruned = outbox(*prune, "--archive", str(archive), "--yes", "--json")
    assert (pruned.code, pruned.json["removed"]) == (0, 3)
    assert len(archive.read_text().splitlines()) == 3
    assert audit_counts(connection) == {"AUDIT_EXPORTED": 2, "AUDIT_PRUNE_SUMMARY": 1}
    assert outbox("audit", "verify", "--json").json == {"ok": True, "head": 6, "findings": []}

    with connection.transaction():
        connection.execute("alter table search_outbox_audit disable trigger all")
        connection.execute("update search_outbox_audit set actor = 'mallory' where id = 4")
    broken = outbox("audit", "verify")
    assert broken.code == 1
    assert "changed" in broken.out
    assert "row 4" in broken.err


def test_a_webhook_is_tried_and_a_signature_checked(outbox: Outbox, receive: Receive, tmp_path: Path) -> None:
    there = receive(200, 503)
    env = {
        "OUTBOX_WEBHOOK_URL": there.url,
        "OUTBOX_WEBHOOK_SECRET": SECRET,
        "OUTBOX_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
    }
    assert outbox("webhook", "test", **env).code == 0
    assert verify(SECRET, *there.got[0], time.time()) is None
    refused(outbox("webhook", "test", **env), 75, "answered 503")
    refused(outbox("webhook", "test", **{**env, "OUTBOX_WEBHOOK_ALLOWED_HOSTS": None}), 75, "refused")
    refused(outbox("webhook", "test"), 78, "OUTBOX_WEBHOOK_URL")

    body = tmp_path / "body"
    body.write_bytes(b'{"type": "x"}')
    sent = headers(SECRET, "msg_1", int(time.time()), body.read_bytes())
    given = ("--id", "msg_1", "--timestamp", sent["webhook-timestamp"], "--signature", sent["webhook-signature"])
    assert outbox("webhook", "verify", str(body), *given, OUTBOX_WEBHOOK_SECRET=SECRET).code == 0
    other = outbox("webhook", "verify", str(body), *given, OUTBOX_WEBHOOK_SECRET="another")
    refused(other, 1, "no signature fits")
    refused(outbox("webhook", "verify", str(body), *given), 78, "OUTBOX_WEBHOOK_SECRET")
    assert SECRET not in other.err


def test_a_daemon_tells_of_failures_and_prunes_what_is_old(
    connection: psycopg.Connection, start_daemon: StartProcess, receive: Receive
) -> None:
    connection.execute(VIEW)
    there = receive(200)
    events(connection, 6, status="done", age="10 days")
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'a', 'cli')")
    age_audit(connection)
    events(connection, 3, status="pending", prefix="bad", op="not-a-real-op")
    daemon = start_daemon(
        OUTBOX_WEBHOOK_URL=there.url,
        OUTBOX_WEBHOOK_ALLOWED_HOSTS="127.0.0.1",
        OUTBOX_RETENTION_DAYS="5",
        OUTBOX_AUDIT_TTL_DAYS="0.000001",
        OUTBOX_PRUNE_INTERVAL_SECONDS="2",
    )
    daemon.wait_until(lambda: statuses(connection) == {"failed": 3}, "six rows pruned, three failed")
    daemon.wait_until(lambda: there.got, "the webhook")
    told = json.loads(there.got[0][1])
    assert told["type"] == "events.failed"
    assert told["data"]["count"] >= 1
    assert told["data"]["error_reason"] == "deterministic_exception"
    gone = "select count(*) from search_outbox_audit_pruned"
    daemon.wait_until(lambda: connection.execute(gone).fetchone() != (0,), "the audit's TTL")
    assert daemon.facts("prune.done", table="search_outbox_events")
    assert daemon.terminate() == 0


def drained(
    connection: psycopg.Connection,
    start_daemon: StartProcess,
    url: str | None,
    rows: int,
    asked: Callable[[], object] = lambda: True,
) -> float:
    """Thirty events fail and are reported to `url`; how many good ones per second drain, by PostgreSQL's clock."""
    connection.execute("truncate search_outbox_events")
    events(connection, 30, status="pending", prefix="bad", op="not-a-real-op")
    events(connection, rows, status="pending", prefix="good")
    daemon = start_daemon(
        OUTBOX_WEBHOOK_URL=url, OUTBOX_WEBHOOK_ALLOWED_HOSTS="127.0.0.1", OUTBOX_WEBHOOK_TIMEOUT_SECONDS="10"
    )
    daemon.wait_until(lambda: statuses(connection).get("done", 0) == rows, "all good rows done")
    daemon.wait_until(asked, "the receiver is asked")  # the good ones may be done before its first delivery
    assert daemon.terminate() == 0
    took = connection.execute(
        "select extract(epoch from max(processed_at) - min(processed_at))::float8 from search_outbox_events"
        " where status = 'done'"
    ).fetchone()
    assert took is not None
    return rows / float(took[0])


@pytest.mark.slow
def test_a_receiver_that_hangs_holds_up_no_event(
    connection: psycopg.Connection, start_daemon: StartProcess, receive: Receive
) -> None:
    """Thirty deliveries of ten seconds each would be five minutes; the good events are done long before."""
    there = receive("hang")
    assert drained(connection, start_daemon, there.url, 4_000, lambda: there.got) > 4_000 / 60


WHO = ("--by", "alice", "--reason", "why not")


def test_one_event_is_discarded_and_asked_for_first(connection: psycopg.Connection, outbox: Outbox) -> None:
    (failed,) = events(connection)
    (done,) = events(connection, status="done", prefix="d")
    refused(outbox("discard", str(failed), *WHO), 2, "--yes")
    refused(outbox("discard", "nonsense", *WHO, "--yes"), 2, "not a uuid")
    refused(outbox("discard", str(uuid4()), *WHO, "--yes"), 1, "Not found.")
    refused(outbox("discard", str(done), *WHO, "--yes"), 1, "is done")
    refused(outbox("discard", str(failed), "--by", "alice", "--reason", "", "--yes"), 2, "reason")
    assert statuses(connection) == {"failed": 1, "done": 1}
    called = outbox("discard", str(failed), *WHO, "--yes", "--json")
    assert (called.code, called.json["entity_id"]) == (0, "e1")
    assert statuses(connection) == {"discarded": 1, "done": 1}


def test_a_flush_needs_the_right_number_and_a_second_name(connection: psycopg.Connection, outbox: Outbox) -> None:
    events(connection, 4)
    flush = ("flush", *WHO, "--fingerprint", "00ff00ff00ff00ff", "--yes")
    refused(outbox(*flush, "--expect", "4", "--approved-by", "Alice"), 2, "approved_by")
    refused(outbox(*flush, "--expect", "3", "--approved-by", "bob"), 1, "more than 3", "nothing was changed")
    refused(outbox(*flush, "--expect", "0", "--approved-by", "bob"), 2, "expect")
    assert statuses(connection) == {"failed": 4}
    called = outbox(*flush, "--expect", "4", "--approved-by", "bob", "--json")
    assert (called.code, called.json["count"]) == (0, 4)
    assert audit_counts(connection) == {"EVENT_DISCARDED": 4, "FLUSH_SUMMARY": 1}


def test_finished_events_are_pruned_by_age(connection: psycopg.Connection, outbox: Outbox) -> None:
    connection.execute(VIEW)
    events(connection, 5, status="done", age="10 days")
    events(connection, 2, status="done", prefix="new")
    connection.execute("insert into search_outbox_audit (action, actor, source) values ('PAUSED', 'a', 'cli')")
    refused(outbox("prune", "--by", "alice", "--yes", OUTBOX_AUDIT_TTL_DAYS="0"), 2, "--older-than-days")
    refused(outbox("prune", "--by", "alice", "--older-than-days", "5"), 2, "--yes")
    assert outbox("prune", "--by", "alice", "--older-than-days", "5", "--dry-run", "--json").json["due"] == 5
    called = outbox("prune", "--by", "alice", "--yes", "--json", OUTBOX_RETENTION_DAYS="5")
    assert (called.code, called.json["removed"], called.json["kept"]) == (0, 5, 0)
    assert statuses(connection) == {"done": 2}
    assert audit_counts(connection) == {"PAUSED": 1, "EVENTS_PRUNE_SUMMARY": 1}
    # As its timer runs it, where events are kept for ever. Whatever is set, the last seven days stay.
    age_audit(connection)
    called = outbox("prune", "--by", "outbox-prune.timer", "--yes", "--json", OUTBOX_AUDIT_TTL_DAYS="0.00000001")
    assert (called.code, called.json["removed"], called.json["audit"]["removed"]) == (0, 0, 2)
    assert audit_counts(connection) == {"AUDIT_PRUNE_SUMMARY": 1}
