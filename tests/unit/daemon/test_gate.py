"""The gate: pauses keep their first time, probes thin out, a probe that was taken is always given back."""

import itertools

import pytest

from outbox.daemon.gate import Control, PauseGate
from outbox.facts import Fact, OperatorPaused, OperatorResumed, SinkPaused, SinkResumed
from outbox.policy.outcome import Failure, Reason
from tests.fixtures.events import Time


class Probe:
    """Answers what the test has set."""

    def __init__(self) -> None:
        self.failure: Failure | None = Failure(Reason.ES_BLOCKED, "still blocked")
        self.asked: list[str] = []

    def __call__(self, target: str) -> Failure | None:
        self.asked.append(target)
        return self.failure


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def gate(facts: list[Fact], clock: Time, probe: Probe) -> PauseGate:
    return PauseGate(facts.append, clock, probe)


def test_a_pause_is_said_once_and_again_only_with_a_new_cause(gate: PauseGate, facts: list[Fact]) -> None:
    for cause in ("es_blocked", "es_blocked", "es_auth"):
        gate.pause("articles", cause, "why")
    assert facts == [SinkPaused("articles", "es_blocked", "why"), SinkPaused("articles", "es_auth", "why")]
    assert gate.snapshot() == {"articles": "es_auth"}


def test_the_end_of_a_pause_says_how_long_it_was_from_its_first_cause_on(
    gate: PauseGate, facts: list[Fact], clock: Time
) -> None:
    gate.pause("articles", "es_blocked", "")
    clock.passes(5)
    gate.pause("articles", "es_auth", "")
    clock.passes(5)
    gate.resume("articles")
    gate.resume("articles")
    assert facts[-1] == SinkResumed("articles", "es_auth", 10.0)
    assert not gate.paused_targets()


def test_probes_are_at_most_five_seconds_apart_however_long_it_takes(gate: PauseGate, clock: Time) -> None:
    gate.pause("articles", "es_blocked", "")
    times = []
    while clock.now < 1_100:
        if target := gate.due_probe():
            times.append(clock.now)
            assert gate.still_broken(target)
        clock.passes(0.05)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] <= 1_000.6
    assert max(gaps) <= 5.1
    assert len(times) <= 35


def test_only_one_lane_at_a_time_tries_a_target(gate: PauseGate, clock: Time) -> None:
    gate.pause("articles", "es_blocked", "")
    clock.passes(1)
    assert gate.due_probe() == "articles"
    assert gate.due_probe() is None
    gate.give_up_probe("articles")
    assert gate.due_probe() == "articles"


def test_each_target_is_paused_and_tried_on_its_own(gate: PauseGate, clock: Time) -> None:
    gate.pause("articles", "es_blocked", "")
    gate.pause("authors", "es_auth", "")
    clock.passes(1)
    assert {gate.due_probe(), gate.due_probe()} == {"articles", "authors"}
    gate.resume("articles")
    assert gate.paused_targets() == {"authors"}


def test_a_probe_that_finds_another_cause_says_so(
    gate: PauseGate, probe: Probe, facts: list[Fact], clock: Time
) -> None:
    gate.pause("articles", "es_blocked", "")
    clock.passes(1)
    probe.failure = Failure(Reason.ES_AUTH, "key revoked")
    assert gate.due_probe() == "articles"
    assert gate.still_broken("articles")
    assert facts[-1] == SinkPaused("articles", "es_auth", "key revoked")


def test_a_lane_that_may_not_claim_rests_until_the_next_probe_and_never_over_a_second(
    gate: PauseGate, clock: Time
) -> None:
    gate.pause("articles", "es_blocked", "")
    assert 0.3 < gate.wait_seconds() <= 0.5
    for _ in range(6):
        clock.passes(6)
        gate.due_probe()
        gate.still_broken("articles")
    assert gate.wait_seconds() == 1.0
    clock.passes(60)
    assert gate.wait_seconds() == 0.05


def test_pauses_by_operators_are_obeyed_and_each_change_is_announced_once(gate: PauseGate, facts: list[Fact]) -> None:
    everything, one = Control("*", "ann", "upgrade"), Control("type:article", "bob", "flood")
    for controls in ([], [everything], [everything, one], [one], []):
        for _ in range(2):
            gate.obey(controls)
    assert facts == [
        OperatorPaused("*", "ann", "upgrade"),
        OperatorPaused("type:article", "bob", "flood"),
        OperatorResumed("*"),
        OperatorResumed("type:article"),
    ]


def test_a_pause_of_one_type_does_not_stop_everything(gate: PauseGate) -> None:
    gate.obey([Control("type:article", "bob", "flood")])
    assert not gate.stopped_by_operator()
    assert gate.types_stopped_by_operator() == {"article"}
    gate.obey([Control("*", "bob", "flood")])
    assert gate.stopped_by_operator()
