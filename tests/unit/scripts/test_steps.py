"""How scripts/test interprets pytest's exit codes: an aborted run is never green."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.waiting import PATIENCE_SECONDS

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


def imitated(folder: Path, machine: str, pytest_does: str) -> str:
    """The script's output if pytest is this line of shell, on this kind of machine."""
    program = folder / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/bash\n{pytest_does}\n")
    program.chmod(0o755)
    (program.parent / "python").symlink_to(sys.executable)
    environ = {"PATH": os.environ["PATH"], "OUTBOX_TEST_MACHINE": machine}
    script = f"export SCRIPT=$$\n{SCRIPT}"
    ran = subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_the_tests_meet_a_machine_that_was_started_a_minute_ago(tmp_path: Path) -> None:
    """If no time namespace can be created, its real age is printed."""
    said = imitated(tmp_path, "young", "cut -d. -f1 /proc/uptime > age")
    age = int((tmp_path / "age").read_text())
    assert age <= 120 or "No time namespace can be created here" in said


@pytest.mark.parametrize(("code", "verdict"), [(0, "passed"), (3, "UNKNOWN"), (1, "FAILED")])
def test_what_ran_beside_is_reported_with_what_it_said_and_its_verdict(tmp_path: Path, code: int, verdict: str) -> None:
    script = f"""set -euo pipefail
say() {{ printf '%s\\n' "$*" >&2; }}
. {ROOT}/scripts/steps.sh
beside look bash -c 'echo found something; exit {code}'
step "look" ended look
report_steps
"""
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert "found something" in ran.stderr
    assert ran.stderr.splitlines()[-2].startswith(f"{verdict} "), ran.stderr
    assert ran.returncode == (verdict == "FAILED")
