"""Giving events up, one or many: rows stay, the audit says who, and wrong expectations change nothing."""

import psycopg
import pytest

from outbox.errors import Conflict
from outbox.ops.discard import DiscardDesk
from outbox.policy.inputs import EventFilter
from outbox.store.acts import PostgresDiscards
from outbox.store.pool import Database
from tests.fixtures.failures import ALICE, BOB, audit_counts, events, replay_desk, statuses


@pytest.fixture
def desk(pool: Database) -> DiscardDesk:
    discards = PostgresDiscards(pool)
    return DiscardDesk(discards.discard, discards.flush)


def test_a_discarded_event_stays_with_its_failure_and_comes_back_by_a_replay(
    connection: psycopg.Connection, pool: Database, desk: DiscardDesk
) -> None:
    (id,) = events(connection)
    assert desk.discard(id, ALICE, "test data").entity_id == "e1"
    row = connection.execute(
        "select status, processed_at is not null, failed_at, error_reason from search_outbox_events"
    ).fetchone()
    assert row == ("discarded", True, None, "es_rejected_document")
    audit = connection.execute("select action, actor, reason, event_id, entity_id from search_outbox_audit").fetchall()
    assert audit == [("EVENT_DISCARDED", "alice", "test data", id, "e1")]
    assert connection.execute("select event_id from search_outbox_discards").fetchall() == [(id,)]
    assert replay_desk(pool).replay_one(id, BOB, "it was not test data")
    assert statuses(connection) == {"pending": 1}


@pytest.mark.parametrize("status", ["processing", "done", "discarded"])
def test_other_states_are_a_conflict_that_names_them(
    connection: psycopg.Connection, desk: DiscardDesk, status: str
) -> None:
    (id,) = events(connection, status=status)
    with pytest.raises(Conflict, match=f"is {status}"):
        desk.discard(id, ALICE, "x")
    assert statuses(connection) == {status: 1}
    assert audit_counts(connection) == {}


def test_a_flush_discards_all_that_match_with_a_row_each_and_a_summary(
    connection: psycopg.Connection, desk: DiscardDesk
) -> None:
    events(connection, 5, entity_type="junk")
    events(connection, 2, prefix="other")
    done = desk.flush(EventFilter(entity_type="junk"), 5, ALICE, "junk producer", "bob")
    assert done.count == 5
    assert statuses(connection) == {"discarded": 5, "failed": 2}
    assert audit_counts(connection, done.id) == {"EVENT_DISCARDED": 5, "FLUSH_SUMMARY": 1}
    detail = connection.execute("select detail from search_outbox_audit where action = 'FLUSH_SUMMARY'").fetchone()
    assert detail is not None
    assert detail[0] == {"discarded": 5, "filter": {"entity_type": "junk"}, "approved_by": "bob"}


@pytest.mark.parametrize("expect", [4, 6, 100])
def test_a_flush_of_another_number_than_expected_changes_nothing(
    connection: psycopg.Connection, desk: DiscardDesk, expect: int
) -> None:
    events(connection, 5)
    with pytest.raises(Conflict, match="nothing was changed"):
        desk.flush(EventFilter(), expect, ALICE, "x", "bob")
    assert statuses(connection) == {"failed": 5}
    assert audit_counts(connection) == {}


def test_who_discards_by_hand_is_listed_as_well(connection: psycopg.Connection) -> None:
    one, two = events(connection, 2)
    connection.execute("update search_outbox_events set status = 'discarded'")
    assert connection.execute("select count(*) from search_outbox_discards").fetchone() == (2,)
    connection.execute("update search_outbox_events set status = 'pending' where id = %s", [one])
    connection.execute("delete from search_outbox_events where id = %s", [two])
    assert connection.execute("select count(*) from search_outbox_discards").fetchone() == (0,)
