"""Health is derived from facts: alive, ready, degraded, without flapping."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from outbox import facts
from outbox.app.chores import chores
from outbox.config import load_settings
from outbox.store.pool import Database
from outbox.telemetry.beats import Beats
from outbox.telemetry.health import Health, ReadyRules

START = datetime(2026, 1, 1, tzinfo=UTC)


class Daemon:
    """A Health whose time is ours."""

    def __init__(self, rules: ReadyRules | None = None, limits: dict[str, float] | None = None) -> None:
        self.now = 1_000.0
        self.health = Health(rules, Beats(limits, clock=self.clock), clock=self.clock, wall=self.wall)

    def clock(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now)

    def told(self, *announced: facts.Fact, every: float = 1.0) -> "Daemon":
        for fact in announced:
            self.now += every
            self.health.handle(fact)
        return self

    def started(self) -> "Daemon":
        return self.told(facts.SchemaChecked(True, "10"), sampled(), facts.SinkProbed("articles", True))

    @property
    def status(self) -> str:
        return self.health.readiness().status

    def check(self, name: str) -> tuple[bool, str]:
        check = self.health.readiness().checks[name]
        return check.ok, check.detail


def sampled(due: int = 0, lanes: dict[str, facts.TypeBacklog] | None = None) -> facts.BacklogSampled:
    return facts.BacklogSampled(due, 0.0, 0, 0, due, {}, lanes or {}, False, 0.01)


def settled(done: int) -> facts.BatchSettled:
    return facts.BatchSettled(uuid4(), 0, done, 0, 0, 0, 0, 0, 0, 0.01, 0.01)


LOST = facts.DatabaseLost("sampler", "connection refused")
UNANSWERED = facts.BulkSent("unknown", {}, {}, 10, 1.0, "articles")
ANSWERED = facts.BulkSent("ok", {"written": 1}, {}, 10, 1.0, "articles")


def test_a_loop_that_waits_for_a_server_does_not_hang_and_begins_anew_with_the_answer() -> None:
    daemon = Daemon(limits={"lane": 10.0}).told(facts.Beat("lane-0"))
    with daemon.health.beats.at_server(), daemon.health.beats.at_server():
        daemon.now += 1_000
        assert daemon.health.alive()
        assert daemon.health.beats.report()["lane-0"]["ok"]
    daemon.now += 10
    assert daemon.health.alive()
    daemon.now += 1
    assert not daemon.health.alive(), "what it does by itself still has its limit"


@pytest.mark.parametrize(
    ("announced", "status"),
    [
        ([LOST] * 2, "ready"),  # two failed checks are not enough
        ([LOST] * 3, "not_ready"),
        ([LOST, LOST, sampled(), LOST, LOST], "ready"),  # a good one in between starts the count again
        ([LOST] * 3 + [sampled()], "not_ready"),  # one passed check is not enough
        ([LOST] * 3 + [sampled()] * 2, "ready"),
        ([LOST] * 3 + [sampled(), LOST, sampled()], "not_ready"),
        ([facts.SampleMissed("too slow")] * 9, "ready"),  # a slow reply is a reply
        ([facts.SchemaChecked(False, "too old")], "not_ready"),
        ([facts.SchemaChecked(False, "too old"), facts.SchemaChecked(True, "10")], "ready"),
        ([facts.WorkerDraining("SIGTERM", 25.0)], "not_ready"),
        ([UNANSWERED] * 2, "ready"),
        ([UNANSWERED] * 3, "degraded"),
        ([UNANSWERED] * 3 + [ANSWERED] * 2, "ready"),
        ([facts.SinkProbed("articles", False, "refused")] * 3, "degraded"),
        ([facts.SinkPaused("*", "connect", "refused")], "degraded"),  # the breaker has already decided
        ([facts.SinkPaused("*", "connect", "x"), facts.SinkResumed("*", "connect", 1.0)], "ready"),
        ([facts.SinkPaused("articles", "es_auth", "401")], "degraded"),
        ([facts.SinkPaused("articles", "es_auth", "401"), facts.SinkResumed("articles", "es_auth", 1.0)], "ready"),
        ([facts.OperatorPaused("type:article", "alice", "deploy")], "degraded"),
        ([facts.OperatorPaused("*", "alice", "deploy"), facts.OperatorResumed("*")], "ready"),
    ],
)
def test_what_turns_readiness(announced: list[facts.Fact], status: str) -> None:
    assert Daemon().started().told(*announced).status == status


# Kafka

FAULT = facts.StreamFault("_ALL_BROKERS_DOWN: no broker at http://u:canary@h")
ASSIGNED = facts.PartitionsAssigned("events", [0, 1])


def test_brokers_that_do_not_answer_degrade_it_until_they_do() -> None:
    daemon = Daemon().started().told(ASSIGNED, FAULT, FAULT)
    assert daemon.status == "ready"
    assert daemon.told(FAULT).status == "degraded"
    assert "canary" not in daemon.check("kafka")[1]
    assert daemon.told(facts.StreamSeen(), facts.StreamSeen()).status == "ready"


# Freshness


def test_due_rows_without_a_success_turn_it_not_ready() -> None:
    daemon = Daemon(ReadyRules(freshness_seconds=60)).started().told(sampled(due=5))
    assert daemon.told(sampled(due=5), every=60).status == "ready"
    assert daemon.told(sampled(due=5), every=1).status == "not_ready"
    assert daemon.check("last_success") == (False, "nothing done since the start, 5 events due")
    assert daemon.told(settled(done=1)).status == "ready"


@pytest.mark.parametrize(
    ("rules", "stale"),
    [
        (ReadyRules(), True),
        (ReadyRules(entity_types=("author",)), False),  # all due rows are articles, which another daemon claims
        (ReadyRules(entity_types=("article",)), True),
        (ReadyRules(exclude_entity_types=("article",)), False),
        (ReadyRules(exclude_entity_types=("author",)), True),
    ],
)
def test_rows_that_another_daemon_claims_are_not_this_one_s_debt(rules: ReadyRules, stale: bool) -> None:
    lanes = {
        "article": facts.TypeBacklog(5, 99.0, 5),
        "author": facts.TypeBacklog(0, 0.0, 0),
        "other": facts.TypeBacklog(0, 0.0, 0),
    }
    daemon = Daemon(rules).started().told(sampled(5, lanes))
    daemon.now += 120
    assert (daemon.status == "not_ready") is stale


# /healthz and the watchdog


def test_a_loop_that_stops_beating_is_not_alive() -> None:
    daemon = Daemon(limits={"lane": 300.0}).told(facts.Beat("lane-0"), facts.Beat("upkeep"))
    assert daemon.told(facts.Beat("lane-0"), every=60).health.alive()
    assert not daemon.told(facts.Beat("lane-0"), every=1).health.alive()
    assert daemon.told(facts.Beat("upkeep")).health.alive()
    daemon.told(facts.Beat("upkeep"), every=302)
    assert not daemon.health.alive()
    assert [name for name, loop in daemon.health.beats.report().items() if not loop["ok"]] == ["lane-0"]


def test_a_chore_that_hangs_restarts_no_daemon_and_is_named() -> None:
    """All loops beside the lanes: a slow webhook receiver must not restart a working projector."""
    settings = load_settings({"DATABASE_URL": "postgresql://h/db"})
    beside = chores(settings, Database("postgresql://h/db", size=1), facts.Announcer(), lambda: 0.0)
    daemon = Daemon().told(*(facts.Beat(name) for name in beside), facts.Beat("lane-0"))
    daemon.told(facts.Beat("lane-0"), every=3600)
    assert daemon.health.alive()
    report = daemon.health.beats.report()
    assert {name for name, loop in report.items() if not loop["ok"]} == {"replays", "webhooks", "pruner"} == set(beside)
    assert {name for name, loop in report.items() if loop["needed"]} == {"lane-0"}


def test_it_is_not_ready_before_the_first_sample_and_the_schema_check() -> None:
    daemon = Daemon()
    assert daemon.status == "not_ready"
    daemon.told(facts.SchemaChecked(True, "10"))
    assert daemon.status == "not_ready"
    daemon.told(sampled())
    assert daemon.status == "ready"


def test_records_that_wait_without_a_success_turn_it_not_ready() -> None:
    waiting = facts.StreamSampled("events", {0: 7, 1: 0}, {0: 70.0, 1: 0.0})
    daemon = Daemon(ReadyRules(freshness_seconds=60)).started().told(ASSIGNED, waiting)
    assert daemon.told(waiting, every=61).status == "not_ready"
    assert daemon.told(facts.PartitionsRevoked("events", [0], 0, False), every=0.1).status == "ready"


@pytest.mark.parametrize(
    ("announced", "why"),
    [
        ([sampled(due=0)], "nothing is due"),
        ([sampled(due=5), *[UNANSWERED] * 3], "the sink is away"),
        ([sampled(due=5), facts.SinkPaused("articles", "es_auth", "401")], "a target is paused"),
        ([sampled(due=5), facts.OperatorPaused("type:a", "alice", "x")], "an operator has paused something"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_freshness_does_not_count_while(announced: list[facts.Fact], why: str) -> None:
    daemon = Daemon().started().told(*announced)
    daemon.now += 3_600
    assert daemon.status in ("ready", "degraded")


def test_a_draining_daemon_is_alive_until_well_after_its_grace() -> None:
    daemon = Daemon().told(facts.Beat("lane-0"), facts.WorkerDraining("SIGTERM", 100.0))
    daemon.now += 105
    assert daemon.health.alive()
    daemon.now += 10
    assert not daemon.health.alive()
