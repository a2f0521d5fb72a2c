"""The shared reading: read once for all who ask, shown old rather than not at all."""

import threading

import pytest

from outbox.errors import DatabaseDown
from outbox.web.services import USEFUL_SECONDS, Shared
from tests.fixtures.waiting import PATIENCE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_reading_is_shared_by_all_who_ask_at_once() -> None:
    looks: list[int] = []
    gate = threading.Event()

    def look() -> int:
        gate.wait(PATIENCE_SECONDS)
        looks.append(1)
        return len(looks)

    shared = Shared(look, 60.0)
    seen: list[int] = []
    people = [threading.Thread(target=lambda: seen.append(shared().value)) for _ in range(8)]
    for person in people:
        person.start()
    gate.set()
    for person in people:
        person.join(PATIENCE_SECONDS)
    assert seen == [1] * 8


def test_a_reading_is_kept_as_long_as_it_is_fresh_and_then_read_by_who_asks() -> None:
    clock, looks = Clock(), list[int]()

    def look() -> int:
        looks.append(1)
        clock.now += 1  # it takes a second: so it comes every ten at most
        return len(looks)

    shared = Shared(look, 2.0, clock)
    assert [shared().value, shared().value] == [1, 1]
    clock.now += 9
    assert shared().value == 1
    clock.now += 1
    assert shared().value == 2


def test_an_old_reading_is_shown_with_its_problem_and_a_useless_one_is_not() -> None:
    clock, away = Clock(), [False]

    def look() -> str:
        if away[0]:
            raise DatabaseDown("gone")
        return "well"

    shared = Shared(look, 60.0, clock)
    assert shared().problem == ""
    away[0] = True
    clock.now += 150
    old = shared()
    assert (old.value, old.age_seconds) == ("well", 150)
    assert "gone" in old.problem
    clock.now += USEFUL_SECONDS
    with pytest.raises(DatabaseDown):
        shared()


def test_nothing_at_all_is_an_error() -> None:
    def look() -> str:
        raise DatabaseDown("gone")

    with pytest.raises(DatabaseDown):
        Shared(look, 60.0)()


def test_after_an_act_the_next_who_asks_sees_it() -> None:
    looks: list[int] = []

    def look() -> int:
        looks.append(1)
        return len(looks)

    shared = Shared(look, 60.0, Clock())
    assert shared().value == 1
    assert shared().value == 1
    shared.forget()
    assert shared().value == 2
