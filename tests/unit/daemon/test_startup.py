"""The start: a database that is down is waited for and said, what is wrong is refused, and every try beats."""

import threading

from outbox.daemon.startup import begin
from outbox.errors import DatabaseDown
from outbox.facts import Beat, DatabaseBack, DatabaseLost, Fact


class Impatient(threading.Event):
    """Waits for nothing, and remembers for how long it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return self.is_set()


class Steps:
    """Each step fails with its errors, one after the other, and is then done."""

    def __init__(self, *errors: list[Exception]) -> None:
        self.done: list[int] = []
        self.facts: list[Fact] = []
        self.stop = Impatient()
        self._errors = errors

    def begin(self, *, patient: bool = True) -> bool:
        steps = [lambda place=place: self._step(place) for place in range(len(self._errors))]
        return begin(steps, self.facts.append, self.stop, patient=patient)

    def _step(self, place: int) -> None:
        if self._errors[place]:
            raise self._errors[place].pop(0)
        self.done.append(place)


def test_each_try_beats_so_that_a_wait_for_the_database_is_no_hang() -> None:
    start = Steps([DatabaseDown("refused"), DatabaseDown("refused")])
    assert start.begin()
    assert [type(fact) for fact in start.facts] == [Beat, DatabaseLost, Beat, DatabaseLost, Beat, DatabaseBack]
    assert {fact.loop for fact in start.facts if isinstance(fact, Beat)} == {"start"}


def test_a_stop_ends_the_wait() -> None:
    start = Steps([DatabaseDown("refused")])
    start.stop.set()
    assert not start.begin()
    assert start.done == []
