"""Waiting for events: one reader for all, bounded in time, number and queries; a notification makes it read at once."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from uuid import uuid4

import pytest

from outbox.ops import settling
from outbox.ops.settling import FASTEST_SECONDS, SettleWatch, Subject, TooManyWaiters
from outbox.policy.event import Status
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


class Table:
    """States by id, and who asked for what."""

    def __init__(self) -> None:
        self.states: dict[Subject, str] = {}
        self.asked: list[set[Subject]] = []
        self.down: Exception | None = None

    def statuses(self, ids: Collection[Subject]) -> Mapping[Subject, str]:
        self.asked.append(set(ids))
        if self.down is not None:
            raise self.down
        return {id: self.states[id] for id in ids if id in self.states}


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def watch(table: Table) -> Iterator[SettleWatch]:
    made = SettleWatch(table.statuses)
    yield made
    made.close()


def test_all_share_one_reader_and_its_rate_is_bounded(table: Table, watch: SettleWatch) -> None:
    ids = [uuid4() for _ in range(300)]
    table.states.update(dict.fromkeys(ids, "pending"))
    began = time.monotonic()
    waiting = [watch.submit(id, 0.5) for id in ids for _ in range(2)]
    readers = [thread for thread in threading.enumerate() if thread.name == "settle-reader"]
    assert len(readers) == 1
    assert {future.result(PATIENCE_SECONDS) for future in waiting} == {Status.PENDING}
    assert len(table.asked) <= (time.monotonic() - began) / FASTEST_SECONDS + 2
    assert set().union(*table.asked) == set(ids)
    eventually(lambda: not readers[0].is_alive(), what="the end of the reader")


def test_no_more_than_some_may_wait(table: Table, watch: SettleWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MOST_WAITERS", 2)
    waiting = [watch.submit(uuid4(), 0.2) for _ in range(2)]
    with pytest.raises(TooManyWaiters, match="Ask without waiting"):
        watch.submit(uuid4(), 0.2)
    assert [future.result(PATIENCE_SECONDS) for future in waiting] == [None, None]
    assert watch.wait(uuid4(), 0) is None
