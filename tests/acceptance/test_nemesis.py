"""Innocents beside poison, then two minutes of kill -9, SIGSTOP, restarts, cuts, floods, wrong clocks: I1 to I19."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.processes import ROOT, clean_environment

MINUTES = os.environ.get("OUTBOX_TEST_NEMESIS_MINUTES", "2")
SEED = os.environ.get("OUTBOX_TEST_SEED", "1")


@pytest.mark.long  # beside other tests; `scripts/test` runs it alone at its end
def test_two_minutes_of_every_fault_lose_nothing_and_every_fault_bites(tmp_path: Path) -> None:
    command = ["scripts/nemesis", "--minutes", MINUTES, "--seed", SEED, "--json", "--out", str(tmp_path / "history")]
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=clean_environment({}), text=True, capture_output=True, timeout=600
    )
    assert done.stdout, done.stderr[-3000:]
    verdict = json.loads(done.stdout)
    broken = [(finding["name"], finding["observed"]) for finding in verdict["findings"] if not finding["ok"]]
    assert broken == [], done.stderr[-3000:]
    assert verdict["second_judge"]["agrees"], verdict["second_judge"]
    assert verdict["word"] == "PASS", f"{verdict['why']}\n{done.stderr[-3000:]}"
    assert done.returncode == 0
    counts = verdict["counts"]
    assert counts["lost"] == counts["stale"] == counts["resurrected"] == counts["misplaced"] == 0
    assert counts["double_leases"] == 0
    assert counts["acknowledged"] > 1_000
    assert counts["refreshes"] > counts["acknowledged"] / 5
    assert counts["joined"] > 200  # routed ones included
    assert verdict["neighbours"]["poison"]["innocents"] > 50
