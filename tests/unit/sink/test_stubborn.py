"""Only documents that were refused alone three times are classified as too large."""

import pytest

from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import BulkAction
from outbox.sink.elastic import Stubborn

BUSY = Failure(Reason.ES_429, "busy")
RESET = Failure(Reason.CONNECT, "reset")
LATE = Failure(Reason.TIMEOUT, "late")


def action(name: str = "a", version: int = 1) -> BulkAction:
    return BulkAction("things", name, version, None, b"{}")


@pytest.mark.parametrize("refusal", [BUSY, RESET])
def test_the_third_refusal_is_about_the_size(refusal: Failure) -> None:
    memory = Stubborn(least_bytes=100)
    assert [memory.judge(action(), 100, refusal) for _ in range(2)] == [refusal] * 2
    blamed = memory.judge(action(), 100, refusal)
    assert isinstance(blamed, Failure)
    assert blamed.reason is Reason.TOO_LARGE


def test_a_timeout_does_not_count_and_success_forgets() -> None:
    memory = Stubborn(least_bytes=100)
    for answer in (BUSY, BUSY, WRITTEN, BUSY, BUSY, LATE, BUSY, BUSY):
        assert memory.judge(action(), 100, answer) == answer


def test_each_version_of_each_document_is_counted_for_itself() -> None:
    memory = Stubborn(least_bytes=100)
    for name, version in [("a", 1), ("a", 2), ("b", 1)] * 2:
        assert memory.judge(action(name, version), 100, BUSY) == BUSY
