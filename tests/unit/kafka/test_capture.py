"""Waiting for the connector ends: when it is there, when it is stopped, when nobody here can tell."""

from typing import cast

import pytest

from outbox.errors import NotPermitted
from outbox.kafka.capture_wait import STOPPED_SECONDS, CaptureWait, await_capture
from outbox.ports import Captured
from outbox.store.event_log import PostgresCapture
from tests.fixtures.events import Time


class Log:
    """Answers in turn; the last one is said again."""

    slot = "shop_log"

    def __init__(self, *answers: Captured | Exception | None) -> None:
        self.answers = list(answers)

    def read(self) -> Captured | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def waited(log: Log, timeout: float | None = 60.0) -> CaptureWait:
    time = Time()
    return await_capture(cast(PostgresCapture, log), timeout, sleep=time.passes, clock=time)


def test_it_ends_when_what_was_written_first_is_confirmed_whatever_is_written_later() -> None:
    log = Log(*(Captured(1000 + 50 * n, 900 + 50 * n, True, False) for n in range(9)))
    assert (waited(log).late, len(log.answers)) == ("", 6)


@pytest.mark.parametrize("timeout", [None, 600.0])
def test_nobody_waits_long_for_a_stopped_connector(timeout: float | None) -> None:
    found = waited(Log(Captured(5_000_000, 0, False, False)), timeout)
    assert found.late == (
        "the connector is stopped (slot shop_log is not in use), and 4.8 MB of the write-ahead log are not captured"
    )
    assert STOPPED_SECONDS <= found.waited_seconds < STOPPED_SECONDS + 1


def test_a_lost_slot_is_said_at_once() -> None:
    found = waited(Log(Captured(1000, 900, False, True)))
    assert ("is lost" in found.late, found.waited_seconds) == (True, 0.0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(None, "this database has no slot shop_log"), (NotPermitted("x"), "this role may not read slot shop_log")],
)
def test_where_this_database_cannot_tell_it_says_so_and_nobody_waits(
    answer: Captured | Exception | None, why: str
) -> None:
    found = waited(Log(answer))
    assert (found.late, found.waited_seconds) == ("", 0.0)
    assert found.unknown == f"{why}: what its connector has not captured yet was not waited for"
