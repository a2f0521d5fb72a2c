"""A replay's life in PostgreSQL: what is pinned, what moves, what is written down, and which worker can move it."""

import threading
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox.errors import Conflict, NotFound
from outbox.ops.replay.desk import Created, ReplayDesk, ReplayRequest
from outbox.policy.audit import Actor, Source
from outbox.policy.inputs import BadRequest, EventFilter
from outbox.policy.replay import ReplayStatus
from outbox.store.pool import Database
from outbox.store.replays import PostgresReplays
from tests.fixtures.failures import ALICE, BOB, audit_counts, events, replay_desk, statuses
from tests.fixtures.waiting import PATIENCE_SECONDS

Connection = psycopg.Connection[Any]


@pytest.fixture
def desk(pool: Database) -> ReplayDesk:
    return replay_desk(pool)


def asked(**about: object) -> ReplayRequest:
    return ReplayRequest(**{"actor": ALICE, "reason": "fixed root cause", **about})  # type: ignore[arg-type]


def finish(connection: Connection, how: str = "done", limit: int = 10_000) -> None:
    """What the projector does with pending rows."""
    times = {"done": "processed_at = clock_timestamp()", "failed": "failed_at = clock_timestamp()"}
    connection.execute(
        f"update search_outbox_events set status = %s, {times[how]} where id in"
        " (select id from search_outbox_events where status = 'pending' order by seq limit %s)",
        [how, limit],
    )


def due(connection: Connection) -> None:
    connection.execute("update search_outbox_replays set next_poll_at = clock_timestamp()")


def test_a_replay_clears_the_failure_counts_itself_and_says_who_and_why(
    connection: Connection, desk: ReplayDesk
) -> None:
    (id,) = events(connection)
    batch = desk.dispatch(desk.create(asked()))
    assert (batch.status, batch.total, batch.replayed, batch.skipped) == (ReplayStatus.FOLLOWING, 1, 1, 0)
    row = connection.execute(
        "select status, attempts, abandoned_count, next_retry_at, failed_at, processed_at, error_reason, error_code,"
        " error, error_fingerprint, error_detail, dead_reason, replay_count, last_replayed_by, last_replayed_reason,"
        " last_replayed_at > now() - interval '1 minute' from search_outbox_events where id = %s",
        [id],
    ).fetchone()
    assert row == ("pending", 0, 0, *[None] * 9, 1, "alice", "fixed root cause", True)
    audit = connection.execute(
        "select action, actor, source, reason, batch_id, event_id, entity_type, entity_id, trace_id from"
        " search_outbox_audit"
    ).fetchall()
    trace = f"{1:032x}"
    item = ("REPLAY_BATCH_ITEM", "alice", "cli", "fixed root cause", batch.id, id, "block", "e1", trace)
    assert audit == [item]


def test_the_limit_holds_in_sql_and_the_longest_failed_come_first(connection: Connection, desk: ReplayDesk) -> None:
    ids = events(connection, 5)
    batch = desk.dispatch(desk.create(asked(limit=3)))
    assert batch.replayed == 3
    moved = connection.execute("select id from search_outbox_events where status = 'pending' order by seq").fetchall()
    assert [row[0] for row in moved] == ids[:3]


def test_explicit_ids_bring_discarded_events_back_and_others_are_skipped_with_their_state(
    connection: Connection, desk: ReplayDesk
) -> None:
    (failed,) = events(connection, prefix="f")
    (gone,) = events(connection, status="discarded", prefix="d")
    (done,) = events(connection, status="done", prefix="o")
    unknown = uuid4()
    result = desk.replay_many([failed, gone, done, unknown], BOB, "again")
    assert set(result.replayed) == {failed, gone}
    assert result.skipped == {done: "done", unknown: "not_found"}
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 2, "REPLAY_BATCH_SKIPPED": 2}
    assert connection.execute("select count(*) from search_outbox_discards").fetchone() == (0,)


@pytest.mark.parametrize(
    ("about", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 10_240}, "reason"),
        ({"actor": Actor("", Source.CLI)}, "by"),
        ({"limit": 0}, "limit"),
        ({"limit": 1_000_001}, "limit"),
        ({"filter": EventFilter(ids=tuple(UUID(int=n) for n in range(501)))}, "limit"),
        ({"rate": float("nan")}, "rate"),
        ({"webhook_url": "https://evil.example/x"}, "webhook_url"),
        ({"webhook_url": "http://127.0.0.1/x"}, "webhook_url"),
    ],
)
def test_bad_input_changes_nothing(
    connection: Connection, desk: ReplayDesk, about: dict[str, object], field: str
) -> None:
    events(connection)
    with pytest.raises(BadRequest) as refused:
        desk.create(asked(**about))
    assert [name for name, _ in refused.value.problems] == [field]
    assert statuses(connection) == {"failed": 1}
    assert audit_counts(connection) == {}


def test_a_request_that_is_sent_again_with_its_client_id_does_nothing_twice(
    connection: Connection, desk: ReplayDesk
) -> None:
    events(connection, 3)
    first = desk.create(asked(client_id="c-1", limit=2))
    again = desk.create(asked(client_id="c-1", limit=2))
    assert again.batch.id == first.batch.id
    assert again.lease is None
    desk.dispatch(first)
    desk.dispatch(again)
    assert statuses(connection) == {"pending": 2, "failed": 1}
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 2}
    with pytest.raises(Conflict):
        desk.create(asked(client_id="c-1", reason="something else"))


def test_a_lost_reply_to_the_commit_is_found_again_by_its_client_id(
    connection: Connection, pool: Database, desk: ReplayDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outbox.errors import DatabaseDown

    events(connection, 2)
    create = desk.store.create
    tries = []

    def loses_the_reply(*args: object, **more: object) -> int | None:
        total = create(*args, **more)  # type: ignore[arg-type]
        tries.append(total)
        if len(tries) == 1:
            raise DatabaseDown("server closed the connection unexpectedly")
        return total

    monkeypatch.setattr(desk.store, "create", loses_the_reply)
    created = desk.create(asked())
    assert tries == [2, None]
    assert created.lease is not None
    assert desk.dispatch(created).replayed == 2
    assert len(desk.page().replays) == 1


def test_two_replays_of_the_same_thousand_rows_move_each_once(connection: Connection, pool: Database) -> None:
    events(connection, 1_000)
    created = [replay_desk(pool, who).create(asked(limit=1_000, actor=Actor(who, Source.CLI))) for who in "ab"]
    barrier = threading.Barrier(2)

    def run(one: Created, who: str) -> None:
        barrier.wait()
        replay_desk(pool, who, rows_a_step=50).dispatch(one)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(created, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    over = [replay_desk(pool).get(one.batch.id) for one in created]
    assert sum(batch.replayed for batch in over) == 1_000
    assert sum(batch.skipped for batch in over) == 1_000
    assert connection.execute("select distinct replay_count, status from search_outbox_events").fetchall() == [
        (1, "pending")
    ]
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 1_000, "REPLAY_BATCH_SKIPPED": 1_000}


def test_following_counts_ends_and_settles_with_a_summary(connection: Connection, desk: ReplayDesk) -> None:
    events(connection, 4)
    batch = desk.dispatch(desk.create(asked()))
    finish(connection, "done", 2)
    due(connection)
    batch = desk.follow(batch.id)
    assert (batch.status, batch.done, batch.failed_again, batch.still_open) == (ReplayStatus.FOLLOWING, 2, 0, 2)
    finish(connection, "failed", 1)
    finish(connection, "done", 1)
    batch = desk.follow(batch.id)  # all are terminal: it does not wait for the next check
    assert (batch.status, batch.done, batch.failed_again, batch.still_open) == (ReplayStatus.SETTLED, 3, 1, 0)
    (row,) = connection.execute(
        "select actor, batch_id, detail from search_outbox_audit where action = 'REPLAY_BATCH_SUMMARY'"
    ).fetchall()
    assert row[:2] == ("alice", batch.id)
    counts = {"total": 4, "replayed": 4, "skipped": 0, "done": 3, "failed_again": 1, "still_open": 0, "discarded": 0}
    assert row[2] == {"status": "settled", **counts, "why": None}
    assert [row["outcome"] for row in desk.show(batch.id).items] == ["failed"]


def test_rows_that_are_pruned_discarded_or_replayed_once_more_are_counted_for_what_they_were(
    connection: Connection, desk: ReplayDesk
) -> None:
    ids = events(connection, 3)
    batch = desk.dispatch(desk.create(asked()))
    connection.execute("delete from search_outbox_events where id = %s", [ids[0]])
    connection.execute("update search_outbox_events set status = 'discarded' where id = %s", [ids[1]])
    connection.execute("update search_outbox_events set status = 'failed' where id = %s", [ids[2]])
    desk.replay_one(ids[2], BOB, "once more")
    batch = desk.follow(batch.id)
    assert batch.status is ReplayStatus.SETTLED
    assert (batch.done, batch.failed_again, batch.discarded) == (1, 1, 1)


def test_a_cancel_leaves_the_rest_failed_and_what_moved_moved(
    connection: Connection, pool: Database, desk: ReplayDesk
) -> None:
    events(connection, 100)
    slow = replay_desk(pool, rows_a_step=10)
    created = slow.create(asked(rate=1_000))

    def cancel_at_thirty(_: object) -> None:
        if desk.get(created.batch.id).replayed == 30:
            desk.cancel(created.batch.id, BOB, "wrong filter")

    batch = slow.dispatch(created, cancel_at_thirty)
    assert (batch.status, batch.replayed, batch.cancelled_by) == (ReplayStatus.CANCELLED, 30, "bob")
    assert statuses(connection) == {"pending": 30, "failed": 70}
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 30, "REPLAY_CANCELLED": 1, "REPLAY_BATCH_SUMMARY": 1}
    with pytest.raises(Conflict):
        desk.cancel(created.batch.id, BOB, "again")
    with pytest.raises(NotFound):
        desk.cancel(uuid4(), BOB, "what?")


def test_only_who_holds_the_lease_moves_a_batch(connection: Connection, pool: Database) -> None:
    events(connection, 4)
    desk = replay_desk(pool, "creator", rows_a_step=2)
    created = desk.create(asked())
    assert created.lease is not None
    steps = PostgresReplays(pool, owner="daemon", notices=lambda _: ())
    assert steps.take_over(5) == []
    assert steps.begin(created.lease)
    assert steps.dispatch(created.lease, 2) is not None
    connection.execute("update search_outbox_replays set lease_until = now() - interval '1 second'")
    (taken,) = steps.take_over(5)
    assert taken.id == created.batch.id
    assert steps.dispatch(created.lease, 2) is None
    assert not steps.finish_dispatch(created.lease)
    assert steps.begin(taken)
    step = steps.dispatch(taken, 5)
    assert step is not None
    assert (step.replayed, step.left) == (2, 0)
    assert steps.finish_dispatch(taken)
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 4}


def test_an_error_that_is_no_outage_fails_the_batch_and_says_which(connection: Connection, desk: ReplayDesk) -> None:
    from outbox.errors import OutboxError

    events(connection, 1)
    created = desk.create(asked())
    connection.execute("alter table search_outbox_events add constraint no_more check (replay_count = 0) not valid")
    with pytest.raises(OutboxError, match="CheckViolation"):
        desk.dispatch(created)
    batch = desk.get(created.batch.id)
    assert batch.status is ReplayStatus.FAILED
    assert "no_more" in (batch.reason or "")
    assert statuses(connection) == {"failed": 1}
