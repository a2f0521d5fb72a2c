"""What becomes of a record, by the verdict on its event."""

import pytest

from outbox.kafka.fate import LONGEST_STAY_SECONDS, Fate, fate, stay_seconds
from outbox.policy.document import refused
from outbox.policy.event import DELETE, REFRESH, UPSERT
from outbox.policy.outcome import Code, DeadReason, Failure, Reason
from outbox.policy.settle import (
    DONE,
    LOOKUPS_BRAKED,
    MISSING_DONE,
    NEWER_IS_RETRIED,
    NOT_SENT,
    SUPERSEDED,
    Done,
    Failed,
    Released,
    RetryLater,
    Settlement,
)
from tests.fixtures.events import an_event

BUSY = Failure(Reason.ES_429, "busy")
AWAY = Failure(Reason.CONNECT, "refused", whole=True)
BAD = Failure(Reason.ES_REJECTED_DOCUMENT, "bad")
LARGE = Failure(Reason.TOO_LARGE, "413", whole=True)
SHARD = Failure(Reason.ES_5XX, "unavailable", whole=True, shard=True)

CASES: list[tuple[str, Settlement, Fate, str]] = [
    (UPSERT, DONE, Fate.PASS, "written"),
    (UPSERT, SUPERSEDED, Fate.PASS, "a newer version is there"),
    (REFRESH, Done(gone=True, drawn=7), Fate.PASS, "under a drawn version a delete needs no memory"),
    (DELETE, Done(gone=True), Fate.PASS, "of a type that the view keeps"),
    (DELETE, DONE, Fate.STORE, "the guard against late upserts reads rows"),
    (DELETE, MISSING_DONE, Fate.STORE, "a tombstone is there for a minute only"),
    (DELETE, SUPERSEDED, Fate.STORE, "as the table keeps it too"),
    (UPSERT, RetryLater(1.0, BUSY), Fate.AGAIN, "a node is busy for a moment"),
    (UPSERT, RetryLater(1.0, Failure(Reason.UNKNOWN, "no")), Fate.STORE, "a table lane tries it again"),
    (UPSERT, Failed(BAD, DeadReason.NON_RETRYABLE), Fate.STORE, "a person sees it"),
    (UPSERT, Failed(BUSY, DeadReason.MAX_ATTEMPTS_EXCEEDED), Fate.STORE, "a person sees it"),
    (UPSERT, Failed(LARGE, DeadReason.NON_RETRYABLE), Fate.STORE, "too large alone: it would stop its partition"),
    (UPSERT, Failed(refused("no", Code.PAYLOAD_INVALID), DeadReason.NON_RETRYABLE), Fate.STORE, "never sent"),
    (UPSERT, Released("braked", 60.0, BAD), Fate.STORE, "it would stop its partition for a minute"),
    (UPSERT, RetryLater(1.0, AWAY), Fate.STAY, "an outage, under OUTBOX_OUTAGE_POLICY=count"),
    (UPSERT, Failed(AWAY, DeadReason.MAX_ATTEMPTS_EXCEEDED), Fate.STAY, "an outage with one attempt allowed"),
    (UPSERT, Released("connect"), Fate.STAY, "an outage"),
    (UPSERT, Released("es_auth"), Fate.STAY, "systemic"),
    (DELETE, NOT_SENT, Fate.STAY, "not sent"),
    (UPSERT, NEWER_IS_RETRIED, Fate.STAY, "sent next, without the newer one"),
    (UPSERT, Released("es_5xx", 1.5, BUSY), Fate.STAY, "a node is going or coming"),
    (REFRESH, Released(Reason.DOCUMENTS_UNAVAILABLE, 5.0, AWAY), Fate.STAY, "systemic"),
    (REFRESH, LOOKUPS_BRAKED, Fate.STAY, "the view is wrong for everyone"),
]


@pytest.mark.parametrize("settlement", [Released("es_5xx", 1.0, SHARD), RetryLater(1.0, SHARD)])
def test_a_record_waits_for_a_shard_only_where_no_other_was_taken(settlement: Settlement) -> None:
    assert fate(an_event(), settlement) is Fate.STAY
    assert fate(an_event(), settlement, others_done=True) is Fate.STORE


@pytest.mark.parametrize(("op", "settlement", "expected", "why"), CASES, ids=[case[3] for case in CASES])
def test_the_fate_of_a_record(op: str, settlement: Settlement, expected: Fate, why: str) -> None:
    assert fate(an_event(op=op), settlement) is expected


def test_what_a_busy_node_refuses_is_sent_again_twice_from_memory_and_then_is_a_row() -> None:
    settlement = RetryLater(1.0, BUSY)
    fates = [fate(an_event(), settlement, others_done=True, times=times) for times in range(4)]
    assert fates == [Fate.AGAIN, Fate.AGAIN, Fate.STORE, Fate.STORE]


def test_who_stays_rests_as_long_as_its_verdict_says_and_never_for_long() -> None:
    assert stay_seconds(NOT_SENT) == 0.0
    assert stay_seconds(Released("es_5xx", 1.5, BUSY)) == 1.5
    assert stay_seconds(LOOKUPS_BRAKED) == LONGEST_STAY_SECONDS
    assert stay_seconds(RetryLater(300.0, AWAY)) == 0.0
