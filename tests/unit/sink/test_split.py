"""The search for bad documents, with scripted replies: exactly the bad ones are found, in few requests."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.classify import Split
from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.sink.elastic import Answer, Lost, Search

NOTHING = Failure(Reason.UNKNOWN, "nothing was put here")
TOO_LARGE = Failure(Reason.TOO_LARGE, "413")
INVALID = Failure(Reason.ES_REJECTED_DOCUMENT, "validation")
BROKEN = Failure(Reason.CONNECT, "reset", whole=True)
LATE = Failure(Reason.TIMEOUT, "late", whole=True)
THROTTLED = Failure(Reason.ES_429, "busy", whole=True)
BAD_GATEWAY = Failure(Reason.ES_5XX, "502", whole=True)


@dataclass
class Wire:
    """Replies like a server whose requests fail because of a bad document."""

    bad: dict[int, Answer]
    alive: bool = True
    sent: list[tuple[int, int]] = field(default_factory=list)
    probes: int = 0
    most: int = 10**9

    def send(self, start: int, stop: int) -> Answer:
        self.sent.append((start, stop))
        spoiled = [answer for place, answer in self.bad.items() if start <= place < stop]
        return spoiled[0] if spoiled else [WRITTEN] * (stop - start)

    def answers(self) -> bool:
        self.probes += 1
        return self.alive

    def write(self, size: int, spans: list[tuple[int, int]] | None = None) -> Search:
        search = Search(self.send, self.answers, lambda: len(self.sent) >= self.most, [NOTHING] * size)
        search.run(iter(spans or [(0, size)]))
        return search


culprits = st.integers(1, 300).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.dictionaries(
            st.integers(0, size - 1),
            st.sampled_from([Split(TOO_LARGE), Split(INVALID), Lost(BROKEN), Lost(LATE)]),
            max_size=12,
        ),
    )
)


@given(culprits)
def test_exactly_the_bad_documents_are_blamed_and_all_others_are_written(case: tuple[int, dict[int, Answer]]) -> None:
    size, bad = case
    wire = Wire(bad)
    search = wire.write(size)
    assert {place for place, outcome in enumerate(search.outcomes) if outcome != WRITTEN} == set(bad)
    assert all(isinstance(search.outcomes[place], Failure) for place in bad)
    assert not any(isinstance(outcome, Failure) and outcome.whole for outcome in search.outcomes)
    assert NOTHING not in search.outcomes
    assert search.away is None
    depth = math.ceil(math.log2(size)) if size > 1 else 0
    assert len(wire.sent) <= 1 + 2 * len(bad) * depth


@pytest.mark.parametrize("lost", [BROKEN, LATE])
def test_nobody_is_blamed_while_the_server_is_down(lost: Failure) -> None:
    wire = Wire({3: Lost(lost)}, alive=False)
    search = wire.write(100, [(0, 50), (50, 100)])
    assert wire.sent == [(0, 50)]
    assert search.outcomes == [lost] * 100
    assert search.away == lost


def test_an_overloaded_server_still_gets_the_other_portions() -> None:
    wire = Wire({3: THROTTLED})
    search = wire.write(100, [(0, 50), (50, 100)])
    assert search.outcomes == [THROTTLED] * 50 + [WRITTEN] * 50
    assert search.pressure
    assert search.away is None


@pytest.mark.parametrize(("alive", "second"), [(True, WRITTEN), (False, BAD_GATEWAY)])
def test_a_bad_gateway_stops_the_batch_only_if_the_probe_gets_no_answer_either(alive: bool, second: object) -> None:
    wire = Wire({3: BAD_GATEWAY}, alive=alive)
    search = wire.write(100, [(0, 50), (50, 100)])
    assert search.outcomes == [BAD_GATEWAY] * 50 + [second] * 50


def test_a_search_that_has_no_more_time_leaves_the_rest_unsent_and_says_so() -> None:
    wire = Wire({0: Lost(LATE)}, most=3)
    search = wire.write(64)
    assert len(wire.sent) == 3
    assert all(isinstance(outcome, Failure) and outcome.reason is Reason.TIMEOUT for outcome in search.outcomes)
    assert search.away is None


def test_what_a_node_that_hangs_did_not_answer_is_sent_again_as_a_whole_and_blamed_on_nobody() -> None:
    replies: list[Answer] = [Lost(LATE, elsewhere=True), Lost(LATE, elsewhere=True)]
    sent: list[tuple[int, int]] = []

    def send(start: int, stop: int) -> Answer:
        sent.append((start, stop))
        return replies.pop() if replies else [WRITTEN] * (stop - start)

    search = Search(send, lambda: True, lambda: False, [NOTHING])
    search.run(iter([(0, 1)]))
    assert (search.outcomes, search.pressure, search.away) == ([WRITTEN], False, None)
    assert sent == [(0, 1)] * 3


CONFIG = Failure(Reason.ES_CONFIG, "refused", whole=True)


def test_a_systemic_refusal_stops_the_target_at_once() -> None:
    wire = Wire({3: CONFIG})
    search = wire.write(100, [(0, 50), (50, 100)])
    assert wire.sent == [(0, 50)]
    assert search.outcomes == [CONFIG] * 100


@pytest.mark.parametrize(
    ("answer", "pressure"),
    [(Split(TOO_LARGE), True), (Split(INVALID), False), (Lost(LATE), True), (Lost(BROKEN), False)],
)
def test_413_and_timeouts_are_pressure(answer: Answer, pressure: bool) -> None:
    assert Wire({0: answer}).write(8).pressure is pressure
