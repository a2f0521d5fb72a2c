"""Nobody moves on before every worker has confirmed and earlier batches are over."""

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from outbox.reindex.rebuild_steps import WorkerBarrier, dead_owner, new_owner
from tests.fixtures.events import Time


class FakeWorkers:
    def __init__(self, late: int, batches: int, *, ours: bool = True) -> None:
        self.late, self.batches, self.ours = late, batches, ours
        self.asked: list[str] = []

    def renew(self, id: int) -> bool:
        self.asked.append("renew")
        return self.ours

    def unconfirmed(self, revision: int) -> Sequence[str]:
        self.asked.append("confirmed?")
        self.late -= 1
        return ["w1"] if self.late >= 0 else []

    def now(self) -> datetime:
        self.asked.append("now")
        return datetime(2026, 2, 3, tzinfo=UTC)

    def older_leases(self, moment: datetime) -> Sequence[tuple[str, int]]:
        self.asked.append("over?")
        self.batches -= 1
        return [("w1", 2)] if self.batches >= 0 else []


REBUILD: Any = SimpleNamespace(id=1, revision=3)


def test_confirmations_come_first_then_the_batches_of_before() -> None:
    time, told, reclaimed = Time(), list[str](), list[int]()
    workers: Any = FakeWorkers(late=30, batches=30)
    crew = WorkerBarrier(workers, lambda: reclaimed.append(1), told.append, time, time.passes)
    crew.wait(REBUILD)
    order = [word for word in workers.asked if word != "renew"]
    assert order == ["confirmed?"] * 31 + ["now"] + ["over?"] * 31
    assert any("w1 to confirm" in line for line in told)
    assert any("2 batches" in line for line in told)
    assert len(told) < 10
    assert 1 <= len(reclaimed) < 10
    assert workers.asked.count("renew") >= 2


@pytest.mark.parametrize(
    ("owner", "dead"),
    [
        (None, False),
        ("elsewhere:1:ab", False),
        (f"{socket.gethostname()}:{os.getpid()}:ab", False),
        (f"{socket.gethostname()}:x:ab", False),
        (f"{socket.gethostname()}:4194305:ab", True),
    ],
    ids=["nobody", "another host", "this process", "no pid", "a pid that is gone"],
)
def test_only_a_process_of_this_host_that_is_gone_is_known_dead(owner: str | None, dead: bool) -> None:
    assert dead_owner(owner) == (owner if dead else None)
    assert dead_owner(new_owner()) is None
