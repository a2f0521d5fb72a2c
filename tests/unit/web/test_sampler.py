"""The shared reading: read once for all who ask, shown old rather than not at all."""

import threading

import pytest

from outbox.errors import DatabaseDown
from outbox.web.services import USEFUL_SECONDS, Shared
from tests.fixtures.events import Time
from tests.fixtures.waiting import PATIENCE_SECONDS


class Counting:
    """Readings that are counted; each takes so many seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.clock, self.seconds, self.looks = Time(), seconds, 0

    def __call__(self) -> int:
        self.looks += 1
        self.clock.passes(self.seconds)
        return self.looks


def test_the_first_reading_is_shared_by_all_who_ask_at_once() -> None:
    gate, look = threading.Event(), Counting()
    shared = Shared(lambda: (gate.wait(PATIENCE_SECONDS), look())[1], 60.0)
    seen: list[int] = []
    people = [threading.Thread(target=lambda: seen.append(shared().value)) for _ in range(8)]
    for person in people:
        person.start()
    gate.set()
    for person in people:
        person.join(PATIENCE_SECONDS)
    assert seen == [1] * 8


def test_an_old_reading_is_shown_with_its_problem_and_a_useless_one_is_not() -> None:
    clock, away = Time(), [False]

    def look() -> str:
        if away[0]:
            raise DatabaseDown("gone")
        return "well"

    shared = Shared(look, 60.0, clock)
    assert shared().problem == ""
    away[0] = True
    clock.passes(150)
    old = shared()
    assert (old.value, old.age_seconds) == ("well", 150)
    assert "gone" in old.problem
    clock.passes(USEFUL_SECONDS)
    with pytest.raises(DatabaseDown):
        shared()
