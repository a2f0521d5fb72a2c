"""The verdicts of a batch: one per event, and counts that add up to what the batch still held."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from outbox.daemon.batch import Verdicts
from outbox.policy.outcome import DeadReason, Failure, Reason
from outbox.policy.settle import DONE, MISSING_DONE, SUPERSEDED, Done, Failed, Released, RetryLater, Settlement
from tests.fixtures.events import an_event

FAILURE = Failure(Reason.ES_5XX, "x")
VERDICTS: list[Settlement] = [
    DONE,
    SUPERSEDED,
    MISSING_DONE,
    Done(gone=True),
    RetryLater(1.0, FAILURE),
    Released("braked"),
    Failed(FAILURE, DeadReason.NON_RETRYABLE),
]
GIVEN = st.lists(st.tuples(st.sampled_from(VERDICTS), st.booleans(), st.sampled_from("ab")), max_size=60)


@given(GIVEN)
def test_the_counts_add_up_to_the_rows_that_the_batch_still_held(given_: list[tuple[Settlement, bool, str]]) -> None:
    events = [an_event(seq, entity_type=kind) for seq, (_, _, kind) in enumerate(given_)]
    verdicts = Verdicts(events)
    for event, (verdict, _, _) in zip(events, given_, strict=True):
        verdicts.give(event, verdict)
    lost = [event.id for event, (_, gone, _) in zip(events, given_, strict=True) if gone]
    summary = verdicts.summary(uuid4(), 0, lost, 1.0, 0.1)
    held = len(events) - len(lost)
    assert summary.done + summary.retried + summary.released + summary.failed == held
    assert sum(summary.by_type.values()) == held
    assert summary.superseded + summary.missing <= summary.done
    assert summary.lost == len(lost)
    assert len(verdicts.failed_attempts(lost)) == summary.retried + summary.failed
