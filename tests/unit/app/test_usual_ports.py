"""The ports of `outbox up`: two that start at once never choose the same one."""

from contextlib import ExitStack

import pytest

from outbox.app import up
from outbox.app.up import CONSOLE, METRICS, usual_ports
from outbox.config import Settings, load_settings


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in (METRICS, CONSOLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(up, "await_free", lambda port, seconds: True)  # nobody listens yet: that takes seconds
    return load_settings(flags={"DATABASE_URL": "postgresql://127.0.0.1/none", "ELASTIC_URL": "http://127.0.0.1:1"})


def test_two_at_once_take_different_ports_and_the_next_one_may_have_them_again(settings: Settings) -> None:
    with ExitStack() as first, ExitStack() as second:
        one, two = usual_ports(settings, first), usual_ports(settings, second)
        assert not set(one.values()) & set(two.values())
    with ExitStack() as next_one, ExitStack() as other:
        again = usual_ports(settings, next_one)
        assert not set(again.values()) & set(usual_ports(settings, other).values())


def test_a_port_that_was_asked_for_is_taken_as_it_is(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(METRICS, "9108")
    asked = load_settings(flags={"DATABASE_URL": "postgresql://127.0.0.1/none", "ELASTIC_URL": "http://127.0.0.1:1"})
    with ExitStack() as first, ExitStack() as second:
        assert usual_ports(asked, first)[METRICS] == usual_ports(asked, second)[METRICS] == 9108
