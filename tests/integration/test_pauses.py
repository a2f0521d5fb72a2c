"""Pauses on real PostgreSQL: an operator's word, by all daemons and by type, and what the gate makes of it."""

from pathlib import Path
from typing import Any

import pytest

from outbox.daemon.claiming import Kinds
from outbox.daemon.upkeep import Upkeep
from outbox.facts import BrakeOff, OperatorPaused, OperatorResumed, VersionAhead
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink

BY_TYPE = Path(__file__).parents[2] / "sql" / "optional" / "by_type.sql"


class Daemon:
    """A worker with its upkeep, stepped by hand."""

    def __init__(self, queue: EventTable, *, indexed: bool = False) -> None:
        self.kinds = Kinds(indexed=indexed)
        self.sink = MemorySink()
        store = queue.store()
        self.worker = InProcess(Parts(store, self.sink, kinds=self.kinds))
        desk = queue.worker()
        self.upkeep = Upkeep(
            desk.controls,
            desk.version_known,
            self.worker.gate,
            self.worker.brake.let_fail,
            self.worker.projector.higher.ahead,
            self.kinds,
            store.open_types,
            ["articles"],
            self.sink.probe,
            self.worker.facts.append,
            self.worker.clock,
            lambda: True,
        )

    def second(self) -> None:
        """One second of a daemon's life: its upkeep, then a few steps of its lane."""
        self.upkeep.pass_once()
        for _ in range(3):
            self.worker.lane.step()
        self.worker.clock.passes(1)


def say(queue: EventTable, scope: str, kind: str = "pause", **values: Any) -> None:
    queue.connection.execute(
        "insert into search_outbox_controls (scope, kind, paused_by, reason, until)"
        " values (%(scope)s, %(kind)s, 'ann', 'upgrade', %(until)s)",
        {"scope": scope, "kind": kind, "until": None, **values},
    )


def unsay(queue: EventTable) -> None:
    queue.connection.execute("delete from search_outbox_controls")


@pytest.fixture
def twins(queue: EventTable) -> None:
    for statement in BY_TYPE.read_text(encoding="utf-8").split(";"):
        if "create index" in statement:
            queue.connection.execute(statement.encode())


def test_a_pause_of_everything_is_obeyed_by_every_daemon_within_its_next_second(queue: EventTable) -> None:
    daemons = [Daemon(queue), Daemon(queue)]
    say(queue, "*")
    for daemon in daemons:
        daemon.second()
    queue.produce_many(10)
    for daemon in daemons:
        daemon.second()
        assert [fact.scope for fact in daemon.worker.of(OperatorPaused)] == ["*"]
    assert queue.counts() == {"pending": 10}
    unsay(queue)
    for daemon in daemons:
        daemon.second()
        assert [fact.scope for fact in daemon.worker.of(OperatorResumed)] == ["*"]
    assert queue.counts() == {"done": 10}


def test_a_pause_of_one_type_stops_that_type_and_no_other(queue: EventTable, twins: None) -> None:
    daemon = Daemon(queue, indexed=True)
    say(queue, "type:author")
    queue.produce_many(5)
    queue.produce_many(5, entity_type="author")
    for _ in range(3):
        daemon.second()
    assert {row.entity_type for row in queue.rows("status = 'done'")} == {"article"}
    assert len(queue.rows("status = 'pending'")) == 5
    unsay(queue)
    for _ in range(3):
        daemon.second()
    assert queue.counts() == {"done": 10}


def test_a_pause_of_one_type_stops_its_fan_outs(queue: EventTable, twins: None) -> None:
    id = queue.produce("7", op="fanout", fanout_attachment=42, fanout_keys="[{}]")
    daemon = Daemon(queue, indexed=True)
    say(queue, "type:article")
    daemon.second()
    assert queue.row(id).last_attempt_at is None
    unsay(queue)
    daemon.second()
    assert queue.row(id).last_attempt_at is not None


def test_an_operators_word_lifts_the_brake_of_one_fingerprint(queue: EventTable) -> None:
    daemon = Daemon(queue)
    for _ in range(120):
        queue.produce(op="not-a-real-op")
    daemon.second()
    assert queue.counts() == {"failed": 50, "pending": 70}
    fingerprint = queue.rows("status = 'failed'")[0].error_fingerprint
    say(queue, f"let_fail:{fingerprint}", "let_fail")
    queue.make_due()
    daemon.second()
    assert queue.counts() == {"failed": 120}
    assert [fact.fingerprint for fact in daemon.worker.of(BrakeOff)] == [fingerprint]


def test_a_version_that_nobody_knows_is_said_once_and_one_that_the_table_knows_is_not(queue: EventTable) -> None:
    daemon = Daemon(queue)
    daemon.sink.documents[("articles", "article:hand")] = (10**9, b"{}")
    daemon.sink.documents[("articles", "article:known")] = (10**9 + 5, b"{}")
    queue.produce("known", event_version=10**9 + 5, status="done")
    queue.produce("hand")
    queue.produce("known")
    for _ in range(4):
        daemon.second()
    (ahead,) = daemon.worker.of(VersionAhead)
    assert (ahead.entity_id, ahead.current) == ("hand", 10**9)
    assert queue.counts() == {"done": 3}


def test_a_pause_that_has_an_end_ends(queue: EventTable) -> None:
    daemon = Daemon(queue)
    say(queue, "*", until="2020-01-01")
    queue.produce_many(3)
    daemon.second()
    assert queue.counts() == {"done": 3}
