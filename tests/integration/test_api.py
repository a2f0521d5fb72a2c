"""The API over a real database: each endpoint does what the contract says, through the services of the CLI."""

from typing import Any
from uuid import UUID, uuid4

import psycopg

from tests.fixtures.console import ACT, Served, StartConsole, post
from tests.fixtures.failures import audit_counts, events
from tests.fixtures.waiting import eventually

Connection = psycopg.Connection[Any]


def status_of(connection: Connection, id: Any) -> str:
    row = connection.execute("select status from search_outbox_events where id = %s", [id]).fetchone()
    assert row is not None
    return str(row[0])


def test_ops_says_how_it_is(console: Served, connection: Connection) -> None:
    events(connection, 3)
    connection.execute("insert into search_outbox_events (entity_type, entity_id, op) values ('a', '1', 'delete')")
    seen = console.client.get("/api/v1/ops").json()
    assert seen["sentence"].startswith("No projector runs")
    assert seen["queue"]["lag"] == 1
    assert seen["queue"]["failed"] == 3
    assert {"lag", "oldest_age_seconds", "stuck", "due", "rate"} <= seen["queue"].keys()
    by_type = {row["entity_type"]: row for row in seen["by_entity_type"]}
    assert by_type["block"]["failed"] == 3
    assert by_type["a"]["pending"] == 1
    assert {"pending", "processing", "done", "failed", "discarded"} <= by_type["a"].keys()
    assert len(seen["recent_failures"]) == 3
    assert {"rows", "next_cursor", "matched"} <= seen["recent_audit"].keys()
    assert seen["workers"] == seen["pauses"] == []
    assert seen["sampled_at"].endswith("Z")


def test_one_event_is_shown_in_full_with_every_digit(console: Served, connection: Connection) -> None:
    payload = '{"id": 12345678901234567890123, "price": 1.10, "twice": 1, "twice": 2}'
    (id,) = connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload) values ('a', '1', 'upsert', %s)"
        " returning id",
        [payload],
    ).fetchone() or (None,)
    answer = console.client.get(f"/api/v1/events/{id}")
    assert f'"payload":{payload}' in answer.text
    seen = answer.json()
    assert seen["payload_shown"] is True
    assert seen["document_id"] == "a:1"
    assert seen["attempts_log"] == seen["acts"] == seen["related"] == []


def test_a_single_replay_is_a_batch_of_one_and_a_second_is_a_conflict(console: Served, connection: Connection) -> None:
    (id,) = events(connection)
    answer = post(console.client, f"/events/{id}/replay", ACT)
    assert answer.status_code == 202
    batch = answer.json()
    assert answer.headers["location"] == f"/api/v1/replays/{batch['id']}"
    assert (batch["total"], batch["replayed"], batch["source"], batch["requested_by"]) == (1, 1, "api", "alice")
    assert status_of(connection, id) == "pending"
    again = post(console.client, f"/events/{id}/replay", ACT)
    assert again.status_code == 409
    assert again.json()["state"] == "pending"
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 1}


def test_a_replay_by_filter_moves_the_rows_and_is_left_to_daemons(console: Served, connection: Connection) -> None:
    ids = events(connection, 3)
    events(connection, 2, reason="timeout", prefix="t", fingerprint="1111111111111111")
    answer = post(console.client, "/failed/replay", {**ACT, "error_reason": "es_rejected_document"})
    assert answer.status_code == 202
    where = answer.headers["location"]
    eventually(lambda: console.client.get(where).json()["replayed"] == 3, what="three replayed")
    connection.execute(
        "update search_outbox_events set status = 'done', processed_at = now() where id = any (%s)", [ids]
    )
    console.app.state.services.replays.follow(UUID(where.rpartition("/")[2]))  # as daemons do every second
    over = console.client.get(where).json()
    assert (over["status"], over["done"], over["failed_again"]) == ("settled", 3, 0)
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 3, "REPLAY_BATCH_SUMMARY": 1}
    listed = console.client.get("/api/v1/replays").json()["replays"]
    assert [batch["id"] for batch in listed] == [over["id"]]


def test_an_idempotency_key_does_nothing_twice_even_after_a_restart(
    start_console: StartConsole, connection: Connection
) -> None:
    events(connection, 4)
    body = {**ACT, "limit": 2}
    first = post(start_console().client, "/failed/replay", body, **{"idempotency-key": "k-1"})
    second_console = start_console()
    again = post(second_console.client, "/failed/replay", body, **{"idempotency-key": "k-1"})
    assert first.json()["id"] == again.json()["id"]
    third = post(second_console.client, "/failed/replay", body, **{"idempotency-key": "k-1"})
    assert third.headers["idempotency-replayed"] == "true"
    other = post(second_console.client, "/failed/replay", {**body, "limit": 3}, **{"idempotency-key": "k-1"})
    assert other.status_code == 422
    count = connection.execute("select count(*) from search_outbox_replays").fetchone()
    assert count == (1,)


def test_pause_and_resume_are_seen_at_once(console: Served, connection: Connection) -> None:
    paused = post(console.client, "/pause", ACT)
    assert paused.json()["scope"] == "*"
    assert console.client.get("/api/v1/ops").json()["pauses"][0]["by"] == "alice"
    assert post(console.client, "/resume", ACT).json() == {"resumed": True, "scope": "*"}
    assert post(console.client, "/resume", ACT).json() == {"resumed": False, "scope": "*"}
    one = post(console.client, "/pause", {**ACT, "entity_type": "order"})
    assert one.status_code == 409, "without the indexes by type one type cannot be paused"
    assert "migrate --by-type" in one.json()["detail"]
    assert audit_counts(connection) == {"PAUSED": 1, "RESUMED": 1}


def test_deliveries_are_listed_without_their_path_and_sent_again(
    start_console: StartConsole, connection: Connection
) -> None:
    served = start_console()
    (id,) = connection.execute(
        "insert into search_outbox_webhook_deliveries (type, url, body, status, attempts)"
        " values ('replay.settled', 'https://hooks.example/secret-path', '{}', 'given_up', 9) returning id"
    ).fetchone() or (None,)
    listed = served.client.get("/api/v1/webhooks/deliveries")
    assert "secret-path" not in listed.text
    assert listed.json()["deliveries"][0]["status"] == "given_up"
    assert post(served.client, f"/webhooks/deliveries/{id}/redeliver", ACT).status_code == 202
    assert post(served.client, f"/webhooks/deliveries/{uuid4()}/redeliver", ACT).status_code == 404
    assert audit_counts(connection) == {"WEBHOOK_REDELIVERED": 1}
    assert served.client.get("/api/v1/webhooks/deliveries").json()["deliveries"][0]["status"] == "pending"


def test_a_token_acts_in_its_own_name(guarded: Served, connection: Connection) -> None:
    one, two = events(connection, 2)
    post(guarded.as_("operator"), f"/events/{one}/discard", {"reason": "r"})
    post(guarded.as_("operator"), f"/events/{two}/discard", {"reason": "r", "by": "alice"})
    rows = connection.execute("select actor, role, source from search_outbox_audit order by id").fetchall()
    assert rows == [("olga", "operator", "api"), ("olga for alice", "operator", "api")]
