"""What becomes of an event for every class of answer; the whole table, and its borders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.backoff import Backoff
from outbox.policy.document import Address, Stack
from outbox.policy.outcome import (
    MISSING,
    WRITTEN,
    DeadReason,
    Failure,
    FailureClass,
    Reason,
    Stale,
)
from outbox.policy.settle import (
    DONE,
    MISSING_DONE,
    SUPERSEDED,
    Done,
    Failed,
    Judge,
    Released,
    RetryLater,
    RetryPolicy,
    Sent,
    accepted,
    settle,
)
from tests.fixtures.events import an_event

COUNT = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=True)
PAUSE = RetryPolicy(10, Backoff(1.0, 300.0), outage_spends_attempts=False)
BY_CLASS = {kind: [reason for reason in Reason if reason.failure_class is kind] for kind in FailureClass}
ADDRESS = Address("articles", "article:1", None)


def half() -> float:
    return 0.5


JUDGE = Judge(COUNT, lambda failure: True, half)


def test_every_reason_has_a_class_and_a_failure_type() -> None:
    assert {kind: len(reasons) for kind, reasons in BY_CLASS.items()} == {
        FailureClass.TRANSIENT: 5,
        FailureClass.DETERMINISTIC: 4,
        FailureClass.SYSTEMIC: 5,
    }


DRAWN = Sent(drawn=True)
DRAWN_GONE, REDRAWN = Sent(gone=True, drawn=True), Sent(drawn=True, redrawn=9)


@pytest.mark.parametrize(
    ("sent", "written", "stale", "older"),
    [
        (Sent(), DONE, SUPERSEDED, SUPERSEDED),
        (Sent(replaced=True), SUPERSEDED, SUPERSEDED, SUPERSEDED),
        (DRAWN, DONE, SUPERSEDED, SUPERSEDED),
        (DRAWN_GONE, Done(gone=True), Done("superseded", gone=True), Done("superseded", gone=True)),
        (REDRAWN, Done(drawn=9), Done("superseded", drawn=9), SUPERSEDED),
    ],
    ids=["own", "newer delete", "drawn", "drawn and gone", "drawn again"],
)
def test_what_was_written_in_an_events_place_decides_how_it_is_done(
    sent: Sent, written: Done, stale: Done, older: Done
) -> None:
    assert [verdict for _, verdict in JUDGE.accepted(Stack(ADDRESS, an_event(2), [an_event(1)]), WRITTEN, sent)] == [
        written,
        older,
    ]
    assert accepted(Stale(7), sent) == accepted(Stale(None), sent) == stale
    assert accepted(MISSING, sent) == (MISSING_DONE if sent == Sent() else written)


@pytest.mark.parametrize("reason", BY_CLASS[FailureClass.SYSTEMIC])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("retry", [COUNT, PAUSE], ids=["count", "pause"])
def test_a_systemic_failure_never_costs_an_attempt(reason: Reason, whole: bool, retry: RetryPolicy) -> None:
    verdict = settle(an_event(attempts=10), Failure(reason, "x", whole=whole), retry, half)
    assert verdict == Released(reason)


@pytest.mark.parametrize("reason", BY_CLASS[FailureClass.DETERMINISTIC])
@pytest.mark.parametrize("retry", [COUNT, PAUSE], ids=["count", "pause"])
def test_a_refused_document_fails_at_its_first_attempt(reason: Reason, retry: RetryPolicy) -> None:
    failure = Failure(reason, "x")
    assert settle(an_event(attempts=1), failure, retry, half) == Failed(failure, DeadReason.NON_RETRYABLE)


@pytest.mark.parametrize("reason", BY_CLASS[FailureClass.TRANSIENT])
def test_a_transient_failure_is_tried_again_until_the_attempts_are_used_up(reason: Reason) -> None:
    failure = Failure(reason, "x")
    for retry in (COUNT, PAUSE):
        assert settle(an_event(attempts=9), failure, retry, half) == RetryLater(0.75 * 256, failure)
        assert settle(an_event(attempts=10), failure, retry, half) == Failed(failure, DeadReason.MAX_ATTEMPTS_EXCEEDED)


@pytest.mark.parametrize(("asked", "least"), [(0.0, 0.0), (120.0, 120.0), (43_200.0, 300.0)])
def test_a_pause_that_the_server_asked_for_is_kept_up_to_the_longest_delay(asked: float, least: float) -> None:
    failure = Failure(Reason.ES_429, "later", whole=True, retry_after_seconds=asked)
    verdict = settle(an_event(attempts=1), failure, COUNT, half)
    assert verdict == RetryLater(least + 0.75, failure)


@pytest.mark.parametrize("reason", BY_CLASS[FailureClass.TRANSIENT])
def test_an_outage_of_the_whole_sink_costs_an_attempt_under_count_and_none_under_pause(reason: Reason) -> None:
    failure = Failure(reason, "x", whole=True)
    assert settle(an_event(attempts=1), failure, COUNT, half) == RetryLater(0.75, failure)
    assert settle(an_event(attempts=10), failure, COUNT, half) == Failed(failure, DeadReason.MAX_ATTEMPTS_EXCEEDED)
    assert settle(an_event(attempts=10), failure, PAUSE, half) == Released(reason)


@given(st.floats(0, 1))
def test_a_shard_that_is_down_costs_no_attempt_under_pause_but_a_wait(random: float) -> None:
    """Released at once it would be claimed again before all others, which would never come."""
    failure = Failure(Reason.ES_5XX, "x", whole=True, shard=True)
    verdict = settle(an_event(attempts=10), failure, PAUSE, lambda: random)
    assert isinstance(verdict, Released)
    assert verdict.delay_seconds is not None
    assert 5 <= verdict.delay_seconds <= 10
    assert settle(an_event(attempts=1), failure, COUNT, half) == RetryLater(0.75, failure)


@pytest.mark.parametrize("retry", [COUNT, PAUSE], ids=["count", "pause"])
def test_the_restart_of_one_of_several_nodes_costs_no_attempt(retry: RetryPolicy) -> None:
    verdict = settle(an_event(attempts=10), Failure(Reason.TIMEOUT, "x", whole=True, moving=True), retry, half)
    assert isinstance(verdict, Released)
    assert verdict.delay_seconds == (1.5 if retry is COUNT else None)


@given(st.sampled_from(list(Reason)), st.booleans(), st.integers(1, 30), st.booleans())
def test_only_the_last_attempt_or_a_deterministic_reason_ever_fails_a_row(
    reason: Reason, whole: bool, attempts: int, counts: bool
) -> None:
    retry = RetryPolicy(10, Backoff(1.0, 300.0), counts)
    verdict = settle(an_event(attempts=attempts), Failure(reason, "x", whole=whole), retry, half)
    if isinstance(verdict, Failed):
        assert reason.failure_class is FailureClass.DETERMINISTIC or attempts >= 10


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_a_rows_own_limit_wins_over_the_setting(attempts: int, own: int, setting: int) -> None:
    retry = RetryPolicy(setting, Backoff(1.0, 300.0))
    verdict = settle(an_event(attempts=attempts, max_attempts=own), Failure(Reason.ES_5XX, "x"), retry, half)
    assert isinstance(verdict, Failed) is (attempts >= own)
