"""Runs `outbox` as the tests' own worker, a fork of the warm process: patient, and armed to die at a point, or not."""

from __future__ import annotations

import os

import outbox.cli
from outbox.store import pool
from tests.nemesis.crash_hooks import arm

POINT, AFTER = "OUTBOX_TEST_CRASH_POINT", "OUTBOX_TEST_CRASH_AFTER"
PATIENCE_SECONDS = 120  # for a connection; longer than a busy machine needs


def main() -> None:
    be_patient()
    if point := os.environ.get(POINT):
        arm(point, int(os.environ[AFTER]))
    outbox.cli.main()


def be_patient() -> None:
    """A command gives up when the database does not answer within five seconds, as on a busy machine. Here it is always
    up, and what counts is where a process dies."""
    pool.OPTIONS["connect_timeout"] = PATIENCE_SECONDS
    defaults = pool.Database.__init__.__kwdefaults__
    assert defaults is not None
    defaults["timeout_seconds"] = float(PATIENCE_SECONDS)
