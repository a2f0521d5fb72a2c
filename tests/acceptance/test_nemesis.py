"""Innocents beside poison, then two minutes of what the seed of the day composes: I1 to I19."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.fixtures.processes import ROOT, clean_environment

MINUTES = os.environ.get("OUTBOX_TEST_NEMESIS_MINUTES", "2")
SEED = os.environ.get("OUTBOX_TEST_SEED") or time.strftime("%Y%m%d", time.gmtime())


@pytest.mark.long  # beside other tests; `scripts/test` runs it alone at its end
def test_two_minutes_of_the_wide_world_lose_nothing_and_every_fault_bites(tmp_path: Path) -> None:
    wide = ["scripts/nemesis", "--wide", "--source", "table", "--minutes", MINUTES, "--seed", SEED]
    command = [*wide, "--json", "--out", str(tmp_path / "history")]
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=clean_environment({}), text=True, capture_output=True, timeout=900
    )
    print(f"{' '.join(wide)}\n{done.stderr[-3000:]}")  # pytest shows it where the test fails
    verdict = json.loads(done.stdout)
    broken = [(finding["name"], finding["observed"]) for finding in verdict["findings"] if not finding["ok"]]
    assert broken == []
    assert verdict["second_judge"]["agrees"], verdict["second_judge"]
    assert verdict["word"] == "PASS", verdict["why"]
    assert done.returncode == 0
    counts = verdict["counts"]
    assert counts["lost"] == counts["stale"] == counts["resurrected"] == counts["misplaced"] == 0
    assert counts["double_leases"] == 0
    assert counts["acknowledged"] > 1_000
    assert counts["refreshes"] > counts["acknowledged"] / 10
    assert counts["joined"] > 20
    assert verdict["neighbours"]["poison"]["innocents"] > 50
