"""What daemons do for replays, on real PostgreSQL: go on after a dead creator, within the limits of a pass."""

from typing import Any

import psycopg
import pytest

from outbox.config import load_settings
from outbox.daemon.replay_chore import ReplayChore
from outbox.errors import DatabaseDown
from outbox.facts import DatabaseLost, EventDiscarded, EventsFlushed, EventsReplayed, Fact, ReplaySettled
from outbox.ops.discard import DiscardDesk
from outbox.ops.replay.desk import ReplayRequest
from outbox.policy.inputs import EventFilter
from outbox.policy.replay import ReplayStatus
from outbox.store.acts import PostgresDiscards
from outbox.store.pool import Database
from outbox.store.replays import PostgresReplays
from tests.fixtures.failures import ALICE, audit_counts, events, replay_desk, statuses


class Daemon:
    """One daemon's chore; its clock moves by a second per pass, as the loop's does."""

    def __init__(self, pool: Database, name: str = "daemon", **limits: Any) -> None:
        self.now = 1_000.0
        self.facts: list[Fact] = []
        self.store = PostgresReplays(pool, owner=name, notices=lambda _: ())
        limited = load_settings({"DATABASE_URL": "postgresql://h/d"}).replay.model_copy(update=limits)
        self.chore = ReplayChore(self.store, PostgresDiscards(pool).tell, limited, self.facts.append, lambda: self.now)

    def passes(self, n: int = 1) -> None:
        for _ in range(n):
            self.chore.pass_once()
            self.now += 1


def orphan(connection: psycopg.Connection, pool: Database, **about: Any) -> Any:
    """A replay whose creator died right after it had pinned the rows."""
    created = replay_desk(pool, "killed").create(ReplayRequest(actor=ALICE, reason="x", **about))
    connection.execute("update search_outbox_replays set lease_until = now() - interval '1 second'")
    return created.batch


def project(connection: psycopg.Connection) -> None:
    connection.execute("update search_outbox_events set status = 'done' where status = 'pending'")


def test_an_orphan_is_dispatched_within_the_rows_of_a_pass_then_followed_and_settled(
    connection: psycopg.Connection, pool: Database
) -> None:
    events(connection, 25)
    batch = orphan(connection, pool, limit=25)
    daemon = Daemon(pool, max_start_per_batch=10)
    seen = []
    for _ in range(3):
        daemon.passes()
        seen.append(statuses(connection).get("pending", 0))
    assert seen == [10, 20, 25]
    project(connection)
    daemon.passes()
    found = replay_desk(pool).get(batch.id)
    assert (found.status, found.done) == (ReplayStatus.SETTLED, 25)
    assert audit_counts(connection) == {"REPLAY_BATCH_ITEM": 25, "REPLAY_BATCH_SUMMARY": 1}
    replayed = [fact for fact in daemon.facts if isinstance(fact, EventsReplayed)]
    assert (sum(fact.count for fact in replayed), replayed[0].source) == (25, "cli")
    assert [fact.done for fact in daemon.facts if isinstance(fact, ReplaySettled)] == [25]


def test_a_live_creator_keeps_its_batch(connection: psycopg.Connection, pool: Database) -> None:
    events(connection, 2)
    replay_desk(pool, "alive").create(ReplayRequest(actor=ALICE, reason="x"))
    Daemon(pool).passes(2)
    assert statuses(connection) == {"failed": 2}


def test_two_daemons_share_orphans_and_no_row_moves_twice(connection: psycopg.Connection, pool: Database) -> None:
    ids = events(connection, 6)
    for id in ids:
        created = replay_desk(pool, "killed").create(ReplayRequest(actor=ALICE, reason="x", client_id=str(id), limit=1))
        assert created.lease is not None
        connection.execute("update search_outbox_events set failed_at = now() where id = %s", [id])
    connection.execute("update search_outbox_replays set lease_until = now() - interval '1 second'")
    one, two = Daemon(pool, "one", max_claim=4), Daemon(pool, "two", max_claim=4)
    one.chore._take_over()
    two.chore._take_over()
    assert (len(one.chore._held), len(two.chore._held)) == (4, 2)
    one.passes()
    two.passes()
    assert audit_counts(connection)["REPLAY_BATCH_ITEM"] + audit_counts(connection).get("REPLAY_BATCH_SKIPPED", 0) == 6
    assert connection.execute("select max(replay_count) from search_outbox_events").fetchone() == (1,)


def test_checks_and_settles_keep_within_their_limits_per_pass(connection: psycopg.Connection, pool: Database) -> None:
    ids = events(connection, 5)
    desk = replay_desk(pool)
    for id in ids:
        desk.replay_one(id, ALICE, "x")
    project(connection)
    daemon = Daemon(pool, max_poll=3, max_settle=2)
    counts = []
    for _ in range(3):
        daemon.passes()
        row = connection.execute(
            "select count(*) filter (where last_poll_at is not null), count(*) filter (where status = 'settled')"
            " from search_outbox_replays"
        ).fetchone()
        counts.append(row)
    assert counts == [(3, 2), (5, 4), (5, 5)]


def test_a_lost_database_fails_no_batch(
    connection: psycopg.Connection, pool: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(connection, 2)
    batch = orphan(connection, pool)
    daemon = Daemon(pool)
    dispatch = daemon.store.dispatch
    away = iter([True, False])

    def sometimes(*args: Any) -> Any:
        if next(away, False):
            raise DatabaseDown("server closed the connection unexpectedly")
        return dispatch(*args)

    monkeypatch.setattr(daemon.store, "dispatch", sometimes)
    daemon.passes()
    assert [fact.where for fact in daemon.facts if isinstance(fact, DatabaseLost)] == ["replays"]
    daemon.passes()
    assert replay_desk(pool).get(batch.id).replayed == 2


def test_what_a_command_has_moved_is_reported_by_one_daemon_once(
    connection: psycopg.Connection, pool: Database
) -> None:
    ids = events(connection, 3)
    result = replay_desk(pool).replay_many([*ids[:2], ids[0]], ALICE, "x")
    assert len(result.replayed) == 2
    one, two = Daemon(pool, "one"), Daemon(pool, "two")
    one.passes(2)
    two.passes(2)
    project(connection)
    two.passes(2)
    one.passes(2)
    facts = [*one.facts, *two.facts]
    assert [(fact.count, fact.source) for fact in facts if isinstance(fact, EventsReplayed)] == [(2, "cli")]
    assert [(fact.done, fact.status) for fact in facts if isinstance(fact, ReplaySettled)] == [(2, "settled")]


def test_an_error_that_waiting_does_not_cure_fails_the_batch(connection: psycopg.Connection, pool: Database) -> None:
    events(connection, 2)
    batch = orphan(connection, pool)
    connection.execute("alter table search_outbox_events add constraint no_more check (replay_count = 0) not valid")
    daemon = Daemon(pool)
    daemon.passes()
    found = replay_desk(pool).get(batch.id)
    assert (found.status, found.failure_type) == (ReplayStatus.FAILED, "unknown")
    assert "no_more" in (found.reason or "")
    assert [fact.status for fact in daemon.facts if isinstance(fact, ReplaySettled)] == ["failed"]
    assert audit_counts(connection) == {"REPLAY_BATCH_SUMMARY": 1}


def test_one_daemon_tells_of_every_discard_whoever_did_it(connection: psycopg.Connection, pool: Database) -> None:
    one, by_hand = events(connection, 2)
    events(connection, 30, entity_type="junk", prefix="j")
    discards = PostgresDiscards(pool)
    desk = DiscardDesk(discards.discard, discards.flush)
    desk.discard(one, ALICE, "test data")
    flushed = desk.flush(EventFilter(entity_type="junk"), 30, ALICE, "junk", "bob")
    connection.execute("update search_outbox_events set status = 'discarded' where id = %s", [by_hand])
    daemons = [Daemon(pool, name) for name in ("one", "two")]
    for daemon in daemons * 2:
        daemon.passes()
    told = [fact for daemon in daemons for fact in daemon.facts if isinstance(fact, EventDiscarded | EventsFlushed)]
    assert sorted(told, key=str) == [
        EventDiscarded(one, "block", "e1", "alice", "test data"),
        EventDiscarded(by_hand, "block", "e2", connection.info.user, ""),
        EventsFlushed(flushed.id, 30, "alice", "junk"),
    ]
