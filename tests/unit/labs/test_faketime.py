"""A wrong clock by libfaketime, or else by Python's own clock."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from labs import faketime


def test_without_the_library_pythons_own_clock_is_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faketime, "library", lambda: None)
    env = faketime.skewed(3600, "/somewhere")
    assert env["PYTHONPATH"].endswith(":/somewhere")
    told = "import time, datetime; print(time.time(), datetime.datetime.now(datetime.UTC).timestamp())"
    done = subprocess.run([sys.executable, "-c", told], env=env, capture_output=True, text=True, check=True)
    assert all(3590 < float(seen) - time.time() < 3700 for seen in done.stdout.split())


def test_with_the_library_the_whole_process_is_fooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faketime, "library", lambda: Path("/lib/faketime.so"))
    env = faketime.skewed(-60, "/somewhere")
    assert (env["LD_PRELOAD"], env["FAKETIME"]) == ("/lib/faketime.so", "-60s")
    assert env["DONT_FAKE_MONOTONIC"] == "1", "waits must stay right"
