"""What scripts/test makes of pytest's exit codes: a run that broke is never green."""

import subprocess
from pathlib import Path

import psutil
import pytest

from outbox.embedded.process import await_end

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


@pytest.mark.parametrize(("code", "verdict"), [(0, "passed"), (3, "UNKNOWN"), (1, "FAILED")])
def test_what_ran_beside_is_told_with_what_it_said_and_its_verdict(tmp_path: Path, code: int, verdict: str) -> None:
    script = f"""set -euo pipefail
say() {{ printf '%s\\n' "$*" >&2; }}
. {ROOT}/scripts/steps.sh
beside look bash -c 'echo found something; exit {code}'
step "look" ended look
report_steps
"""
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=20)
    assert "found something" in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith(f"{verdict} "), ran.stderr
    assert ran.returncode == (verdict == "FAILED")


def test_what_runs_beside_ends_with_the_script_and_all_that_it_started(tmp_path: Path) -> None:
    script = f"""set -euo pipefail
. {ROOT}/scripts/steps.sh
beside look bash -c 'sleep 300 & echo $! > child; wait'
until [ -s child ]; do sleep 0.05; done
exit 7
"""
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=False, timeout=20)
    assert ran.returncode == 7
    child = int((tmp_path / "child").read_text())
    left = [process for process in psutil.process_iter() if process.pid == child]
    assert await_end(left, 10) == []
