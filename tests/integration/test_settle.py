"""Settling on real PostgreSQL: every column that a verdict writes, attempts kept apart, and a reply that is lost."""

import psycopg
import pytest

from outbox.errors import DatabaseDown
from outbox.facts import LeaseLost
from outbox.policy.outcome import Code, DeadReason, Failure, Reason
from outbox.policy.settle import DONE, Done, Failed, Released, RetryLater, Settlement
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable, alive
from tests.fixtures.sinks import MemorySink

REFUSED = Failure(
    Reason.ES_REJECTED_DOCUMENT, "400 no", Code.PAYLOAD_INVALID, "0123456789abcdef", {"status": 400, "why": 'a "b"'}
)
BUSY = Failure(Reason.ES_429, "429 busy", fingerprint="fedcba9876543210")
AWAY = Failure(Reason.CONNECT, "nobody", fingerprint="f", whole=True)


def settle(queue: EventTable, verdict: Settlement) -> None:
    store = queue.store()
    claimed = queue.claim(store)
    store.settle(claimed.token, [(event.id, verdict) for event in claimed.events])


def test_a_failed_row_says_everything_that_an_operator_needs(queue: EventTable) -> None:
    id = queue.produce()
    settle(queue, Failed(REFUSED, DeadReason.NON_RETRYABLE))
    row = queue.row(id)
    assert (row.status, row.error_reason, row.error_code) == (
        "failed",
        "es_rejected_document",
        "OUTBOX_PAYLOAD_INVALID",
    )
    assert (row.error, row.error_fingerprint, row.dead_reason) == ("400 no", "0123456789abcdef", "non_retryable")
    assert row.error_detail == {"status": 400, "why": 'a "b"'}
    assert (row.next_retry_at, row.processed_at, row.owner, row.lease_until) == (None, None, None, None)
    assert row.failed_at is not None
    assert row.lease_token is not None, "the last token stays"


def test_done_clears_the_last_failure_and_keeps_attempts_time_and_token(queue: EventTable) -> None:
    id = queue.produce()
    settle(queue, RetryLater(0.0, BUSY))
    assert queue.row(id).error_reason == "es_429"
    settle(queue, DONE)
    row = queue.row(id)
    assert (row.status, row.attempts, row.failed_at, row.next_retry_at) == ("done", 2, None, None)
    assert (row.error_reason, row.error_code, row.error, row.error_fingerprint, row.dead_reason) == (None,) * 5
    assert None not in (row.processed_at, row.last_attempt_at, row.lease_token)


@pytest.mark.parametrize("op", ["upsert", "delete", "refresh"])
def test_done_is_the_same_alone_beside_other_verdicts_and_with_a_verdict_of_its_own(
    queue: EventTable, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`settle_done`; `settle` for a row that is in no verdict; `settle` for one in a verdict."""
    rows = []
    for beside, told in ((False, False), (True, False), (True, True)):
        id = queue.produce(op=op)
        if beside:
            queue.produce()
        store = queue.store()
        claimed = queue.claim(store)
        verdicts = [(event.id, DONE if event.id == id else Released("not_sent")) for event in claimed.events]
        with monkeypatch.context() as patch:
            if told:  # another `Done` than the one that is known by identity
                patch.setattr("outbox.store.events._is_plain", lambda _: False)
                verdicts = [(id, Done() if settlement is DONE else settlement) for id, settlement in verdicts]
            store.settle(claimed.token, verdicts, drawn=77)
        columns = "to_jsonb(e) - array['id', 'seq', 'entity_id', 'event_version', 'lease_token']"
        text = f"select {columns} from search_outbox_events e where id = %s"
        found = queue.value(text, id).items()
        rows.append({name: "set" if name.endswith("_at") and value else value for name, value in found})
        queue.connection.execute("delete from search_outbox_events")
    assert rows[0]["status"] == "done"
    assert rows[1:] == rows[:1] * 2


def test_attempts_whose_cause_was_the_item_are_kept_and_those_of_an_outage_are_not(queue: EventTable) -> None:
    queue.produce()
    for verdict in (
        RetryLater(0.0, BUSY),
        RetryLater(0.0, AWAY),
        Released("braked", 0.0, REFUSED),
        Failed(REFUSED, DeadReason.NON_RETRYABLE),
    ):
        settle(queue, verdict)
    kept = queue.connection.execute(
        "select attempt, replay, reason, code, error, worker, detail from search_outbox_attempts order by at"
    ).fetchall()
    assert [row[:6] for row in kept] == [
        (1, 0, "es_429", "OUTBOX_EXECUTION_FAILED", "429 busy", "w1"),
        (3, 0, "es_rejected_document", "OUTBOX_PAYLOAD_INVALID", "400 no", "w1"),
    ]
    assert kept[1][6] == {"status": 400, "why": 'a "b"'}


class LosesReplies:
    """The real store, whose connection breaks right after the commit of so many settles."""

    def __init__(self, queue: EventTable, replies: int = 1) -> None:
        self._real = queue.store()
        self.replies = replies

    def settle(self, token: object, settlements: object, drawn: int | None = None, *, part: bool = False) -> object:
        answer = self._real.settle(token, settlements, drawn, part=part)  # type: ignore[arg-type]
        if self.replies:
            self.replies -= 1
            raise DatabaseDown("the connection broke")
        return answer

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


@pytest.mark.parametrize("replies", [1, 3])
def test_a_commit_whose_reply_was_lost_is_repeated_and_nothing_counts_as_lost(queue: EventTable, replies: int) -> None:
    for number in range(4):
        queue.produce(str(number), event_version=number)
    sink = MemorySink(refuse=lambda action: {1: BUSY, 2: REFUSED}.get(action.version))
    worker = InProcess(Parts(LosesReplies(queue, replies), sink))  # type: ignore[arg-type]
    worker.run()
    assert queue.counts() == {"done": 2, "pending": 1, "failed": 1}
    assert worker.of(LeaseLost) == []
    summary = worker.last
    assert (summary.done, summary.retried, summary.failed, summary.lost) == (2, 1, 1, 0)
    assert queue.value("select count(*) from search_outbox_attempts") == 2


def test_a_settle_after_the_lease_was_taken_changes_nothing_and_is_counted(queue: EventTable) -> None:
    for _ in range(3):
        queue.produce()
    worker = InProcess(Parts(queue.store(), MemorySink()))
    claimed = worker.claim()
    queue.expire(claimed.token)
    queue.reclaims(rows_a_step=2).step(alive)
    worker.projector.project(claimed, 0)
    assert [fact.count for fact in worker.of(LeaseLost)] == [2]
    assert (worker.last.done, worker.last.lost) == (1, 2)
    assert queue.counts() == {"done": 1, "pending": 2}


def test_a_heartbeat_moves_the_rows_and_the_lease_and_nothing_else(queue: EventTable) -> None:
    id = queue.produce()
    store = queue.store(lease_seconds=60)
    claimed = queue.claim(store)
    queue.expire(claimed.token)
    before = queue.row(id)
    assert store.renew(claimed.token)
    after = queue.row(id)
    assert after.lease_until > before.lease_until
    assert (after.attempts, after.status, after.processing_started_at) == (
        1,
        "processing",
        before.processing_started_at,
    )
    assert queue.reclaims().step(alive).rows == 0


def test_settle_and_claim_do_not_wait_for_the_disk_and_replay_would(queue: EventTable, database: str) -> None:
    """`synchronous_commit` is off inside the two statements only: the session keeps its own."""
    queue.produce()
    store = queue.store()
    claimed = queue.claim(store)
    with queue.pool().connection() as connection:
        row = connection.execute("show synchronous_commit").fetchone()
    assert row == ("on",)
    store.settle(claimed.token, [(claimed.events[0].id, DONE)])
    with psycopg.connect(database) as other:
        assert other.execute("show synchronous_commit").fetchone() == ("on",)
