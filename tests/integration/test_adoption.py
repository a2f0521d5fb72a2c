"""Adoption of the guide's table: nothing lost, nothing rewritten, nobody held up, and a kill anywhere is fixed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox.store.schema import files, state
from outbox.store.schema.adoption import CannotAdopt
from outbox.store.schema.migrate import migrate, plan
from outbox.store.schema.patience import LOCK_TIMEOUT_MS
from tests.fixtures.depth import depth
from tests.fixtures.guide_table import INSERT, create_guide_table
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

Connection = psycopg.Connection[Any]

ROOT = Path(__file__).parents[2]
ROWS = depth(40_000, 200_000)
SCHEDULING_SECONDS = 0.5
"""What two shared cores may add to a wait."""


@pytest.fixture
def guide(empty_database: str) -> Iterator[Connection]:
    """The guide's table, empty, in a database of its own."""
    with psycopg.connect(empty_database, autocommit=True) as conn:
        create_guide_table(conn)
        yield conn


def value(conn: Connection, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


class Producer(threading.Thread):
    """Inserts as the guide's producers do, one row per transaction, and keeps the longest wait."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._stop_asked = threading.Event()
        self.inserted = 0
        self.longest_seconds = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as conn:
                while not self._stop_asked.is_set():
                    started = time.monotonic()
                    conn.execute(INSERT, (1_000_000_000 + self.inserted,))
                    self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
                    self.inserted += 1
        except psycopg.Error as failure:
            self.failure = failure

    def finish(self) -> None:
        self._stop_asked.set()
        self.join(PATIENCE_SECONDS)
        assert self.failure is None


@contextmanager
def producing(url: str) -> Iterator[Producer]:
    producer = Producer(url)
    producer.start()
    try:
        eventually(lambda: producer.inserted > 10, what="the first inserts")
        yield producer
    finally:
        producer.finish()


def assert_adopted(conn: Connection) -> None:
    """Every row is as the contract wants it, whatever it was before."""
    assert state.check_schema(conn).ok
    assert value(conn, "select to_regclass('search_outbox_adoption')") is None
    assert value(conn, "select count(*) from search_outbox_events where status <> 'done' and seq is null") == 0
    wrong = (
        "select count(*) from search_outbox_events"
        " where (processed_at is not null) <> (status in ('done', 'discarded'))"
        " or (failed_at is not null) <> (status = 'failed')"
    )
    assert value(conn, wrong) == 0


def test_many_rows_in_every_state_are_adopted_under_a_producer(
    empty_database: str, guide: Connection, record_property: Callable[[str, object], None]
) -> None:
    guide.execute("drop table search_outbox_events")
    create_guide_table(guide, ROWS)
    before: dict[Any, Any] = dict(
        guide.execute("select id, (status, event_version, entity_id, op)::text from search_outbox_events")
    )
    file_before = value(guide, "select pg_relation_filenode('search_outbox_events')")
    with producing(empty_database) as producer:
        migrate(empty_database)
    record_property("longest insert, ms", round(producer.longest_seconds * 1000))
    assert producer.longest_seconds < LOCK_TIMEOUT_MS / 1000 + SCHEDULING_SECONDS
    after: dict[Any, Any] = dict(
        guide.execute("select id, (status, event_version, entity_id, op)::text from search_outbox_events")
    )
    assert len(after) == ROWS + producer.inserted
    assert before.items() <= after.items()
    assert value(guide, "select pg_relation_filenode('search_outbox_events')") == file_before
    assert_adopted(guide)
    assert_numbered_in_order_of_creation(guide)


def assert_numbered_in_order_of_creation(conn: Connection) -> None:
    """Rows that were there: from 1, without a gap, by creation; rows with the default: above them."""
    assert value(
        conn,
        "select bool_and(seq = place) from (select seq, row_number() over (order by created_at, id) as place"
        " from search_outbox_events where seq < 1000000) as old",
    )
    old = value(conn, "select count(*) from search_outbox_events where seq < 1000000")
    assert old >= ROWS * 4 // 10
    assert value(conn, "select min(seq) from search_outbox_events where seq >= 1000000") > old
    assert value(conn, "select count(seq) from search_outbox_events where status = 'done'") == 0


def columns(conn: Connection) -> dict[str, tuple[str, bool, str | None]]:
    rows = conn.execute(
        "select attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(d.adbin, d.adrelid)"
        " from pg_attribute left join pg_attrdef as d on d.adrelid = attrelid and d.adnum = attnum"
        " where attrelid = 'search_outbox_events'::regclass and attnum > 0 and not attisdropped"
    ).fetchall()
    return {name: (kind, required, default) for name, kind, required, default in rows}


def test_an_adopted_table_has_the_columns_of_a_fresh_one_with_its_own_types(
    empty_database: str, guide: Connection, connection: Connection
) -> None:
    own = {name: kind for name, (kind, _, _) in columns(guide).items()}
    migrate(empty_database)
    adopted, fresh = columns(guide), columns(connection)
    assert {name: kind for name, (kind, _, _) in adopted.items() if name in own} == own
    assert {name: kind for name, (kind, _, _) in adopted.items() if name not in own} == {
        name: kind for name, (kind, _, _) in fresh.items() if name not in own
    }
    defaults = {name: (default or "").split("::")[0] for name, (_, _, default) in adopted.items()}
    assert defaults == {name: (default or "").split("::")[0] for name, (_, _, default) in fresh.items()}
    assert {name for name, row in adopted.items() if row[1]} == {name for name, row in fresh.items() if row[1]}


def test_an_adopted_table_has_the_settings_and_triggers_of_a_fresh_one(
    empty_database: str, guide: Connection, connection: Connection
) -> None:
    migrate(empty_database)
    facts = (
        "select array(select unnest(reloptions) order by 1),"
        " array(select tgname from pg_trigger where tgrelid = c.oid order by 1),"
        " array(select (conname, convalidated)::text from pg_constraint where conrelid = c.oid and contype = 'c')"
        " from pg_class as c where oid = 'search_outbox_events'::regclass"
    )
    assert guide.execute(facts).fetchone() == connection.execute(facts).fetchone()


def test_versions_by_default_start_above_the_highest_that_is_there(empty_database: str, guide: Connection) -> None:
    guide.execute(INSERT, (41_000,))
    migrate(empty_database)
    guide.execute(
        "insert into search_outbox_events (entity_type, entity_id, op) values ('block', gen_random_uuid(), 'upsert')"
    )
    assert value(guide, "select max(event_version) from search_outbox_events") == 41_001


def test_a_table_with_jsonb_is_projected_as_it_is(empty_database: str, guide: Connection) -> None:
    """Its binary form is no text: a claim gave dicts instead of bytes, and every batch with one ended in an error."""
    guide.execute("alter table search_outbox_events add column payload jsonb, add column error_detail jsonb")
    migrate(empty_database)
    ids = [str(uuid4()) for _ in range(3)]
    texts = ['{"n": 1}', json.dumps({"t": "x" * 100_000}), "[]"]
    for id, text in zip(ids, texts, strict=True):
        guide.execute("select outbox_enqueue('block', %s, 'upsert', null)", [id])
        guide.execute("update search_outbox_events set payload = %s where entity_id = %s", [text, id])
    sink = MemorySink()
    with ExitStack() as stack:
        queue = EventTable(empty_database, guide, stack)
        InProcess(Parts(queue.store(), sink)).run()
    found = {name: json.loads(body) for (_, name), (_, body) in sink.documents.items()}
    assert found == {f"block:{id}": json.loads(text) for id, text in zip(ids[:2], texts[:2], strict=True)}
    assert value(guide, "select error_code from search_outbox_events where failed_at is not null") == (
        "OUTBOX_PAYLOAD_INVALID"
    )


UNFIT = [
    ("alter table search_outbox_events drop column created_at", "created_at is missing"),
    ("alter table search_outbox_events alter column created_at type timestamp", "timestamp without time zone"),
    ("alter table search_outbox_events alter column event_version type int", "event_version is integer"),
    ("alter table search_outbox_events add column tenant int not null", "tenant"),
    ("alter table search_outbox_events drop constraint search_outbox_events_pkey", "id is not unique"),
    ("alter table search_outbox_events add seq text", "seq is text"),
]


@pytest.mark.parametrize(("change", "complaint"), UNFIT, ids=[row[1] for row in UNFIT])
def test_a_table_that_cannot_be_adopted_is_refused_with_the_reason_and_left_alone(
    empty_database: str, guide: Connection, change: str, complaint: str
) -> None:
    guide.execute(change.encode())
    before = columns(guide)
    with pytest.raises(CannotAdopt, match=complaint):
        migrate(empty_database)
    with pytest.raises(CannotAdopt, match=complaint):
        plan(empty_database)
    assert columns(guide) == before


STEPS = [
    "applying 0002_events",
    "adopting search_outbox_events: columns",
    "adopting search_outbox_events: sequences above what is there",
    "adopting search_outbox_events: defaults",
    "adopting search_outbox_events: checking every row",
    "applying 0003_guard",
    "adopting search_outbox_events: listing open and failed rows",
    "applying 0005_event_indexes",
    "applying 0006_enqueue",
]


def test_adoption_that_dies_before_any_step_is_finished_by_the_next(empty_database: str, guide: Connection) -> None:
    class Killed(Exception):
        pass

    def die_at(last: str, line: str) -> None:
        if line == last:
            raise Killed

    guide.execute("drop table search_outbox_events")
    create_guide_table(guide, 3_000)
    for step in STEPS:
        with pytest.raises(Killed):
            migrate(empty_database, say=partial(die_at, step))
        guide.execute(INSERT, (1,))
    migrate(empty_database)
    assert_adopted(guide)
    assert value(guide, "select count(*) from search_outbox_events") == 3_000 + len(STEPS)


def left_to_fill(conn: Connection) -> int:
    there = value(conn, "select to_regclass('search_outbox_adoption') is not null")
    return int(value(conn, "select count(*) from search_outbox_adoption")) if there else 0


MIGRATE = """
import sys
from outbox.store.schema.migrate import migrate
migrate(sys.argv[1], say=lambda line: print(line, flush=True))
"""


@contextmanager
def migrate_process(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", MIGRATE, url], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_adoption_killed_in_the_middle_of_its_rows_goes_on_where_it_was(empty_database: str, guide: Connection) -> None:
    guide.execute("drop table search_outbox_events")
    create_guide_table(guide, 40_000)
    with migrate_process(empty_database) as process:
        eventually(lambda: 0 < left_to_fill(guide) < 16_000, every=0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert state.check_schema(guide).state == "too_old"
    assert left_to_fill(guide) > 0
    migrate(empty_database)
    assert_adopted(guide)
    assert value(guide, "select count(*) from search_outbox_events") == 40_000


WAITING_MIGRATES = """
select count(*) from pg_stat_activity
 where datname = current_database() and application_name = 'outbox migrate' and wait_event = 'relation'
"""


def test_a_long_transaction_delays_adoption_and_not_the_producers(empty_database: str, guide: Connection) -> None:
    with psycopg.connect(empty_database) as long, producing(empty_database) as producer:
        long.execute(INSERT, (1,))
        with migrate_process(empty_database) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("adopting search_outbox_events: columns"):
                    break
            eventually(lambda: value(guide, WAITING_MIGRATES))
            eventually(lambda: not value(guide, WAITING_MIGRATES), what="the first try giving up")
            long.commit()
            assert process.wait(PATIENCE_SECONDS) == 0
    assert producer.longest_seconds > LOCK_TIMEOUT_MS / 1000 - SCHEDULING_SECONDS
    assert producer.longest_seconds < LOCK_TIMEOUT_MS / 1000 + SCHEDULING_SECONDS
    assert_adopted(guide)


def guide_form(conn: Connection) -> list[Any]:
    """The table's catalogue entry: columns, indexes, constraints, triggers, settings."""
    rest = (
        "select reloptions, array(select pg_get_indexdef(indexrelid) from pg_index where indrelid = c.oid order by 1),"
        " array(select conname from pg_constraint where conrelid = c.oid and contype <> 'n' order by 1),"
        " array(select tgname from pg_trigger where tgrelid = c.oid order by 1)"
        " from pg_class as c where oid = 'search_outbox_events'::regclass"
    )
    return [columns(conn), conn.execute(rest).fetchone()]


def test_adoption_can_be_undone_by_hand_and_done_again(empty_database: str, guide: Connection) -> None:
    guide.execute("drop table search_outbox_events")
    create_guide_table(guide, 2_000)
    form = guide_form(guide)
    rows = (
        "select id, entity_type, entity_id, op, event_version, status, owner, attempts, next_retry_at, error,"
        " error_reason, replay_count, created_at, updated_at from search_outbox_events order by id"
    )
    before = guide.execute(rows).fetchall()
    migrate(empty_database, by_type=True, by_entity=True, notify=True, log=True)
    everything = [*files.numbered(), *map(files.part, files.PARTS)]
    for migration in reversed(everything):
        guide.execute(migration.undo(adopted=True).encode())
    assert guide_form(guide) == form
    assert guide.execute(rows).fetchall() == before
    migrate(empty_database)
    assert_adopted(guide)


def test_rows_that_someone_holds_are_filled_when_they_are_free_again(empty_database: str, guide: Connection) -> None:
    guide.execute("drop table search_outbox_events")
    create_guide_table(guide, 40_000)
    hold = "select id from search_outbox_events where seq is null and status = 'pending' for update"
    with psycopg.connect(empty_database) as holder, migrate_process(empty_database) as process:
        eventually(lambda: left_to_fill(guide), every=0.001)
        held = len(holder.execute(hold).fetchall())
        assert held > 0
        eventually(lambda: left_to_fill(guide) == held, what="all but the held rows")
        holder.commit()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert_adopted(guide)
