"""What scripts/test makes of pytest's exit codes: a run that broke is never green."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Ends with the next code of `codes`; asked for tests of promises that failed, it says whether there are some.
PYTEST = """#!/bin/bash
case "$*" in *collect-only*) exit "$PROMISED" ;; esac
read -r code rest < codes; echo "$rest" > codes; exit "$code"
"""
SCRIPT = f"""set -euo pipefail
say() {{ printf '%s\\n' "$*" >&2; }}
. {ROOT}/scripts/steps.sh
step "tests" run_tests tests
report_steps
"""
NONE = 5  # pytest's code for "no tests collected"


@pytest.mark.parametrize(
    ("codes", "promised", "verdict"),
    [
        ("0", NONE, "passed"),
        ("1 0", NONE, "UNSTEADY"),
        ("1 1", NONE, "FAILED"),
        ("1 0", 0, "FAILED"),
        ("1 3", NONE, "FAILED"),
        ("3", NONE, "FAILED"),
        ("137", NONE, "FAILED"),
        ("5", NONE, "FAILED"),
    ],
)
def test_only_tests_that_ran_and_passed_are_green(tmp_path: Path, codes: str, promised: int, verdict: str) -> None:
    program = tmp_path / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(PYTEST)
    program.chmod(0o755)
    (tmp_path / "codes").write_text(codes + "\n")
    environ = {"PATH": "/usr/bin:/bin", "PROMISED": str(promised)}
    ran = subprocess.run(
        ["bash", "-c", SCRIPT], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=20
    )
    assert ran.stderr.splitlines()[-1].startswith(f"{verdict} "), ran.stderr
    assert ran.returncode == (verdict == "FAILED")
