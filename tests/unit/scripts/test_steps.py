"""How scripts/test interprets pytest's exit codes: an aborted run is never green."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Ends with the code that it was given.
PYTEST = """#!/bin/bash
exit "$CODE"
"""
SCRIPT = f"""set -euo pipefail
say() {{ printf '%s\\n' "$*" >&2; }}
. {ROOT}/scripts/steps.sh
step "tests" run_tests tests
report_steps
"""


@pytest.mark.parametrize(
    ("code", "verdict", "said"),
    [
        (0, "passed", ""),
        (1, "FAILED", ""),
        (3, "FAILED", "no verdict"),  # an error inside pytest; as a step's code it would mean UNKNOWN
        (5, "FAILED", "no verdict"),  # no tests collected
        (124, "FAILED", "did not end within 77 s"),
        (137, "FAILED", "The tests were killed: after 77 s"),
    ],
)
def test_only_tests_that_ran_and_passed_are_green(tmp_path: Path, code: int, verdict: str, said: str) -> None:
    program = tmp_path / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(PYTEST)
    program.chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin", "CODE": str(code), "OUTBOX_TEST_LIMIT_SECONDS": "77"}
    ran = subprocess.run(["bash", "-c", SCRIPT], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-2].startswith(f"{verdict} "), ran.stderr
    assert said in ran.stderr
    assert ran.returncode == (verdict == "FAILED")
