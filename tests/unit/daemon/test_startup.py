"""The start: a database that is down is waited for and said, a wrong schema is refused, and every try beats."""

import threading

import pytest

from outbox.daemon.startup import wait_for_schema
from outbox.errors import DatabaseDown, SchemaMismatch
from outbox.facts import Beat, DatabaseBack, DatabaseLost, Fact, SchemaChecked
from outbox.policy.schema import SchemaState

FITS = SchemaState("ok", 1, 1)


class Impatient(threading.Event):
    """Waits for nothing."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def start(*answers: SchemaState | Exception, patient: bool = True) -> list[Fact]:
    left, facts = list(answers), list[Fact]()

    def check() -> SchemaState:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait_for_schema(check, facts.append, Impatient(), patient=patient)
    return facts


def test_each_try_beats_so_that_a_wait_for_the_database_is_no_hang() -> None:
    facts = start(DatabaseDown("refused"), DatabaseDown("refused"), FITS)
    kinds = [type(fact) for fact in facts]
    assert kinds == [Beat, DatabaseLost, Beat, DatabaseLost, Beat, DatabaseBack, SchemaChecked]
    assert {fact.loop for fact in facts if isinstance(fact, Beat)} == {"start"}


def test_who_does_not_wait_gets_the_error_at_once() -> None:
    with pytest.raises(DatabaseDown):
        start(DatabaseDown("refused"), FITS, patient=False)


def test_a_schema_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SchemaMismatch):
        start(SchemaState("too_old", 1, 2))
