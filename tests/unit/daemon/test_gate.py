"""The gate: pauses keep their first time, probes thin out, a probe that was taken is always given back."""

import pytest

from outbox.daemon.gate import PauseGate
from outbox.facts import Fact, OperatorPaused, OperatorResumed
from outbox.policy.outcome import Failure, Reason
from outbox.ports import ControlRow
from tests.fixtures.events import Time


class Bench:
    """A gate whose probe answers what the test has set."""

    def __init__(self) -> None:
        self.facts, self.clock = list[Fact](), Time()
        self.failure: Failure | None = Failure(Reason.ES_BLOCKED, "still blocked")
        self.gate = PauseGate(self.facts.append, self.clock, lambda target: self.failure)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def pause(scope: str, by: str, reason: str) -> ControlRow:
    return ControlRow(scope, "pause", by, reason)


def test_pauses_by_operators_are_obeyed_and_each_change_is_announced_once(bench: Bench) -> None:
    everything, one = pause("*", "ann", "upgrade"), pause("type:article", "bob", "flood")
    for controls in ([], [everything], [everything, one], [one], []):
        for _ in range(2):
            bench.gate.obey(controls)
    assert bench.facts == [
        OperatorPaused("*", "ann", "upgrade"),
        OperatorPaused("type:article", "bob", "flood"),
        OperatorResumed("*"),
        OperatorResumed("type:article"),
    ]
