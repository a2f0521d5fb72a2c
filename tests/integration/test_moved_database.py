"""A database that was moved with its rows and without its sequence: versions go on above what was given out."""

from contextlib import closing
from typing import cast

import psycopg
import pytest

from outbox.ops.audit import AuditDesk
from outbox.policy.audit import Actor, Source
from outbox.policy.entity_type import EntityType, KeptBy, Versions
from outbox.reindex.tables import PostgresVerifications
from outbox.store.audit import PostgresAudit
from outbox.store.doctor import PostgresDoctor
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import PostgresEvents, catch_up
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink
from tests.fixtures.wired import Wire

ALICE = Actor("alice", Source.CLI)


def verified(url: str) -> list[str]:
    """What the whole chain of the audit lacks."""
    with closing(Database(url, size=1)) as pool:
        pool.open()
        return [str(finding) for finding in AuditDesk(PostgresAudit(pool)).verify().findings]


class Moved:
    """Ten notes were projected up to version 500; then the rows came to a database whose sequence begins anew."""

    def __init__(self, queue: EventTable) -> None:
        self.queue = queue
        self.sink = MemorySink()
        self.worker = InProcess(Parts(queue.store(), self.sink))
        queue.value("select setval('search_outbox_version', 490)")
        for n in range(10):
            queue.produce(str(n), entity_type="note", payload='{"text": "old"}')
        self.worker.run()
        queue.value("select setval('search_outbox_version', 1)")

    def change(self, *ids: int) -> None:
        for n in ids:
            self.queue.produce(str(n), entity_type="note", payload='{"text": "new"}')

    def text(self, n: int) -> bytes | None:
        found = self.sink.documents.get(("articles", f"note:{n}"))
        return None if found is None else found[1]

    def last_version(self) -> int:
        return int(self.queue.value("select last_value from search_outbox_version"))


@pytest.fixture
def moved(queue: EventTable) -> Moved:
    return Moved(queue)


def test_changes_after_the_move_are_projected(moved: Moved) -> None:
    """B6: at its start a worker raises the sequence above what rows tell of, with an audit row."""
    assert catch_up(moved.queue.pool(), ALICE) == (1, 500)
    assert moved.last_version() > 500
    moved.change(*range(10))
    moved.queue.produce("3", "delete", entity_type="note")
    moved.worker.run()
    assert [moved.text(n) for n in range(10)] == [b'{"text": "new"}' if n != 3 else None for n in range(10)]
    audited = moved.queue.value("select detail from search_outbox_audit where action = 'VERSION_RAISED'")
    assert audited == {"was": 1, "now": 500, "renumbered": 0}


def test_changes_that_were_written_before_anyone_noticed_get_versions_in_their_order(moved: Moved) -> None:
    moved.change(1, 2, 1)
    moved.queue.produce("4", "delete", entity_type="note")
    moved.queue.produce("new", entity_type="note")
    catch_up(moved.queue.pool(), ALICE)
    assert moved.queue.value("select detail -> 'renumbered' from search_outbox_audit") == 5
    moved.worker.run()
    assert (moved.text(1), moved.text(2), moved.text(4)) == (b'{"text": "new"}', b'{"text": "new"}', None)
    in_order = "select array_agg(event_version order by seq) from search_outbox_events where entity_id = '1'"
    versions = moved.queue.value(in_order)
    assert versions == sorted(versions)


def test_a_change_after_the_move_wins_over_one_that_was_open_then_or_whose_delete_is_pruned(moved: Moved) -> None:
    """Of neither entity a done event tells what was projected."""
    moved.queue.value("select setval('search_outbox_version', 600)")
    moved.queue.produce("fresh", entity_type="note", payload='{"text": "old"}')
    moved.sink.tombstones["articles", "note:gone"] = 400
    moved.queue.value("select setval('search_outbox_version', 1)")
    for entity in ("fresh", "gone"):
        moved.queue.produce(entity, entity_type="note", payload='{"text": "new"}')
    catch_up(moved.queue.pool(), ALICE)
    moved.worker.run()
    found = [moved.sink.documents.get(("articles", f"note:{entity}")) for entity in ("fresh", "gone")]
    assert [document and document[1] for document in found] == [b'{"text": "new"}'] * 2


def test_ids_of_our_own_tables_are_caught_up_with_too(moved: Moved) -> None:
    """A logical replica has rows and no sequences: the next comparison would get an id that is there. It begins before
    any projector was there."""
    log = PostgresVerifications(moved.queue.pool())
    about = dict.fromkeys(("entity_type", "sample", "rebuild_id")) | {"started_by": "a", "target": "b", "estimate": 0}
    assert log.begin(**about) == 1
    new = "select setval(pg_get_serial_sequence('search_outbox_verifications', 'id'), 1, false)"  # of a new cluster
    moved.queue.value(new)
    assert [log.begin(**about) for _ in range(2)] == [2, 3]
    moved.queue.value(new)
    moved.queue.value("select setval('search_outbox_version', 1)")
    highest = moved.queue.value("select setval('search_outbox_seq', 1) * 0 + max(seq) from search_outbox_events")
    assert log.begin(**about) == 4
    moved.change(1)
    assert moved.queue.value("select max(seq) from search_outbox_events where status = 'pending'") > highest


def test_replicated_rows_of_the_audit_keep_their_hashes_and_forged_ones_do_not(moved: Moved, postgres_url: str) -> None:
    for _ in range(3):
        catch_up(moved.queue.pool(), ALICE)
        moved.queue.value("select setval('search_outbox_version', 1)")
    rows = moved.queue.connection.execute("select json_agg(a)::text from search_outbox_audit a").fetchone()
    head = moved.queue.connection.execute("select json_agg(h)::text from search_outbox_audit_head h").fetchone()
    with fresh_database(postgres_url) as url:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as copy:
            copy.execute("set session_replication_role = replica")
            copy.execute("truncate search_outbox_audit_head")
            fill = "insert into {0} select * from json_populate_recordset(null::{0}, %s::json)"
            copy.execute(fill.format("search_outbox_audit_head").encode(), head)
            copy.execute(fill.format("search_outbox_audit").encode(), rows)
            copy.execute("set session_replication_role = origin")
            assert verified(url) == []
            copy.execute("insert into search_outbox_audit (action, actor, source) values ('A', 'b', 'cli')")
            assert verified(url) == [], "it goes on from there"
            copy.execute("set session_replication_role = replica")
            forged = "insert into search_outbox_audit (action, actor, source, hash, prev_hash, id) values"
            copy.execute(f"{forged} ('A', 'b', 'cli', 'x', 'y', 99)".encode())
            assert copy.execute("select max(id) from search_outbox_audit").fetchone() == (5,), "a forged one is chained"


def test_an_older_event_that_is_only_late_keeps_its_version(queue: EventTable) -> None:
    """Written before the newer one was projected: it is older."""
    worker = InProcess(Parts(queue.store(), MemorySink()))
    late = queue.produce("1", entity_type="note", event_version=5)
    queue.connection.execute("update search_outbox_events set next_retry_at = now() + interval '1 day'")
    queue.produce("1", entity_type="note", event_version=900)
    worker.run()
    PostgresEntityTypes(queue.pool()).change(
        "note", EntityType(KeptBy.PAYLOAD), ALICE, "ours", EntityType(KeptBy.PAYLOAD, Versions.PRODUCER)
    )
    assert catch_up(queue.pool(), ALICE) is not None
    assert queue.row(late).event_version == 5


def test_versions_of_producers_are_not_ours_to_follow(queue: EventTable) -> None:
    queue.produce("1", entity_type="price", event_version=1_700_000_000_000)
    InProcess(Parts(queue.store(), MemorySink())).run()
    assert catch_up(queue.pool(), ALICE) is None
    assert int(queue.value("select last_value from search_outbox_version")) < 1_000


@pytest.mark.parametrize("done", [False, True], ids=["open", "done"])
def test_a_seq_that_a_producer_made_up_leaves_numbers_for_everybody_else(queue: EventTable, done: bool) -> None:
    """The highest that there is: the sequence raised above it had none left, and no producer could insert."""
    made_up = queue.produce("1", entity_type="note", seq=2**63 - 1)
    queue.produce("2", entity_type="note", seq=5_000)
    if done:
        queue.connection.execute("update search_outbox_events set status = 'done', processed_at = now()")
    assert queue.row(made_up).status == ("done" if done else "pending")
    catch_up(queue.pool(), ALICE)
    queue.produce("3", entity_type="note")
    assert int(queue.value("select last_value from search_outbox_seq")) == 5_001


def test_a_lane_that_comes_to_another_server_raises_it_before_its_first_claim(moved: Moved, wire: Wire) -> None:
    worker = wire()
    moved.queue.value("select setval('search_outbox_version', 1)")
    pool = cast(PostgresEvents, worker.lanes[0].claimer.store)._database
    with pool.connection() as connection:
        pool.on_other_server(connection)
    assert moved.last_version() > 500


def test_a_daemon_raises_it_before_its_first_claim_and_the_doctor_says_so_before(moved: Moved, wire: Wire) -> None:
    doctor = PostgresDoctor(moved.queue.pool(), "search_documents", moved.queue.url)
    assert doctor.sequence_behind() == (1, 500)
    wire()
    assert doctor.sequence_behind() is None
    assert moved.last_version() > 500
