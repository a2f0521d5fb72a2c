"""A worker of a crash point waits for its connection, so that a busy machine does not decide how it ends."""

import pytest

from outbox.store import pool
from tests.nemesis.crash_worker import PATIENCE_SECONDS, be_patient


def test_a_command_waits_for_a_database_that_answers_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "OPTIONS", dict(pool.OPTIONS))
    monkeypatch.setattr(pool.Database.__init__, "__kwdefaults__", dict(pool.Database.__init__.__kwdefaults__ or {}))
    be_patient()
    made = pool.Database("postgresql://127.0.0.1:1/nowhere", size=1)._pool
    assert made.timeout == PATIENCE_SECONDS
    assert isinstance(made.kwargs, dict)
    assert made.kwargs["connect_timeout"] == PATIENCE_SECONDS
