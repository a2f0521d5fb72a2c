"""Taking a worker id: free or dead at once, silent after a wait, alive never."""

import os
import socket
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox.daemon import startup as module
from outbox.daemon.startup import Enrolment
from outbox.errors import DatabaseDown, OtherTarget, WorkerIdTaken
from outbox.facts import Beat, DatabaseLost, Fact, Warned
from outbox.policy.projection import Projects
from outbox.ports import Holder, Other

HERE = Projects("articles")


def holder(start_id: UUID, host: str, pid: int, silent_seconds: float) -> Holder:
    return Holder(start_id, host, pid, silent_seconds, heartbeat_seconds=1.0)


@dataclass
class FakeRegister:
    """Holders as they are seen one check after the other; the id is given when the last one is gone."""

    looks: list[Holder] = field(default_factory=list)
    frees: set[UUID] = field(default_factory=set)
    beats: list[bool | Exception] = field(default_factory=list)
    seen: int = 0
    told: str | None = None
    others_found: list[list[Other]] = field(default_factory=list)
    left: int = 0

    def register(self, about: dict[str, Any], dead_start_id: UUID | None) -> bool:
        return self.holder() is None or dead_start_id is not None

    def holder(self) -> Holder | None:
        return self.looks[min(self.seen, len(self.looks) - 1)] if self.looks else None

    def beat(self, state: str, server: str | None = None) -> bool:
        self.told = server
        answer = self.beats.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def others(self) -> list[Other]:
        return self.others_found.pop(0) if self.others_found else []

    def leave(self) -> None:
        self.left += 1


class Waiting(threading.Event):
    """Each wait is one more read of the register."""

    def __init__(self, register: FakeRegister) -> None:
        super().__init__()
        self.register = register

    def wait(self, timeout: float | None = None) -> bool:
        self.register.seen += 1
        if self.register.seen >= len(self.register.looks):
            self.register.looks = []
        return self.is_set()


def enrolled(register: FakeRegister, stop: threading.Event | None = None) -> list[Fact]:
    facts: list[Fact] = []
    Enrolment(register, "w1", "1", 1.0, [], HERE, facts.append).enter(stop or Waiting(register))
    return facts


def enter(*looks: Holder, stopped: bool = False) -> list[Fact]:
    stop = Waiting(register := FakeRegister(list(looks)))
    if stopped:
        stop.set()
    return enrolled(register, stop)


def test_a_dead_process_of_this_host_frees_its_id_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pid_alive", lambda _: False)
    assert enter(holder(uuid4(), socket.gethostname(), 4_000_000, 0.1)) == []


def test_a_holder_that_falls_silent_is_waited_for_and_the_wait_is_said_once() -> None:
    start = uuid4()
    facts = enter(*(holder(start, "far", 7, silent) for silent in (0.5, 1.0, 1.5, 2.0)))
    assert [fact.event for fact in facts if isinstance(fact, Warned)] == ["worker.id_taken"]
    assert facts.count(Beat("start")) == 4  # a wait is no hang: /healthz stays 200


def test_a_holder_that_beats_meanwhile_keeps_its_id() -> None:
    start = uuid4()
    with pytest.raises(WorkerIdTaken, match="w1 runs on far as pid 7"):
        enter(*(holder(start, "far", 7, silent) for silent in (0.5, 1.0, 0.2, 0.7)))


def test_a_worker_whose_id_was_taken_over_leaves_and_one_that_was_cut_off_stays() -> None:
    facts: list[Fact] = []
    register = FakeRegister(beats=[True, DatabaseDown("away"), True, False])
    lost: list[bool] = []
    stop = threading.Event()
    enrolment = Enrolment(register, "w1", "1", 0.001, [], HERE, facts.append, server=lambda: "OpenSearch 2.19.6")
    enrolment.run(stop, lambda: lost.append(True))
    assert lost == [True]
    assert register.told == "OpenSearch 2.19.6"
    assert [type(fact) for fact in facts] == [DatabaseLost, Warned]


def other(start_id: UUID, host: str, silent_seconds: float, index: str = "elsewhere") -> list[Other]:
    return [Other(Projects(index).stored(), "w2", holder(start_id, host, 4_000_000, silent_seconds))]


def beside(*looks: list[Other]) -> tuple[FakeRegister, list[Fact]]:
    register = FakeRegister(others_found=list(looks))
    return register, enrolled(register)


def test_a_worker_that_writes_elsewhere_and_lives_refuses_the_start_which_leaves_nothing_behind() -> None:
    start = uuid4()
    with pytest.raises(OtherTarget, match="w2 on far writes every entity type to elsewhere, and this one to articles"):
        beside(other(start, "far", 0.5), other(start, "far", 0.9), other(start, "far", 0.1))


def test_one_that_falls_silent_or_is_known_dead_or_writes_to_the_same_index_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = uuid4()
    register, facts = beside(other(start, "far", 0.5), other(start, "far", 2.9))
    assert register.left == 2, "meanwhile it is not in the way of others"
    assert [fact.event for fact in facts if isinstance(fact, Warned)] == ["worker.other_target"]
    assert beside(other(start, "far", 0.5, "articles"))[1] == []
    monkeypatch.setattr(module, "pid_alive", lambda _: False)
    assert beside(other(start, socket.gethostname(), 0.5))[1] == []


def test_the_same_process_twice_on_one_host_keeps_its_id_too() -> None:
    start = uuid4()
    with pytest.raises(WorkerIdTaken):
        enter(*(holder(start, socket.gethostname(), os.getpid(), silent) for silent in (0.9, 0.1)))


def test_a_stop_ends_the_wait() -> None:
    with pytest.raises(WorkerIdTaken, match="stopped while waiting"):
        enter(holder(uuid4(), "far", 7, 0.5), holder(uuid4(), "far", 7, 0.9), stopped=True)
