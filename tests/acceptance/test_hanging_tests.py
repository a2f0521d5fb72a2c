"""What scripts/test does when a test hangs or its process dies: it ends with a verdict. Scratch tests, real pytest."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.fixtures.processes import ROOT, clean_environment

SCRIPT = """set -euo pipefail
say() { printf '%s\\n' "$*" >&2; }
. scripts/steps.sh
step "tests" run_tests -p no:cacheprovider -p no:cov "$@"
report_steps
"""
PLUGINS = """
pytest_plugins = ["tests.fixtures.dispatch", "tests.fixtures.limits"]
def pytest_configure():
    import tests.fixtures.limits
    tests.fixtures.limits.GRACE_SECONDS = 5
"""
FINE = "".join(f"def test_{n}(): pass\n" for n in range(4))


def start(folder: Path, files: dict[str, str], *options: str, **env: str) -> "subprocess.Popen[str]":
    """scripts/test's own function on these files, in two processes and a process group of its own, as a shell does."""
    for name, text in {"conftest.py": PLUGINS, **files}.items():
        (folder / name).write_text(textwrap.dedent(text))
    own = {"PYTHONPATH": str(ROOT), "OUTBOX_TEST_PROCESSES": "2", "OUTBOX_TEST_MACHINE": "young", **env}
    return subprocess.Popen(
        ["bash", "-c", SCRIPT, "bash", "-c", "pyproject.toml", f"--rootdir={folder}", *options, str(folder)],
        cwd=ROOT,
        env=clean_environment(own),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def run(folder: Path, files: dict[str, str], *options: str, **env: str) -> tuple[int, str]:
    """Exit code and output."""
    started = start(folder, files, *options, **env)
    output, _ = started.communicate()
    return started.returncode, output


@pytest.mark.release("judges the tests and not the program")
def test_a_dead_process_and_a_hang_fail_their_tests_and_all_others_are_run(tmp_path: Path) -> None:
    """One file per way to die. Each has tests before and after, which count as passed."""
    files = {
        "test_a_killed.py": """
            import os
            def test_before(): pass
            def test_dies(): os.kill(os.getpid(), 9)
            def test_after(): pass
        """,
        "test_b_hanging.py": """
            import threading
            def test_before(): pass
            def test_hangs():
                threading.Thread(target=wait_elsewhere, daemon=True).start()
                threading.Event().wait()
            def wait_elsewhere(): threading.Event().wait()
            def test_after(): pass
        """,
        "test_c_deaf.py": """
            import time
            def test_before(): pass
            def test_catches_everything():
                while True:
                    try: time.sleep(1)
                    except BaseException: pass
            def test_after(): pass
        """,
        "test_d_fine.py": FINE,
    }
    code, output = run(tmp_path, files, "--timeout=5")
    assert code == 1, output
    assert output.splitlines()[-2].startswith("FAILED  tests"), output
    assert re.search(r"3 failed, 10 passed", output), output
    assert re.search(r"crashed while running '.*test_a_killed.py::test_dies'", output), output
    assert re.search(r"crashed while running '.*test_c_deaf.py::test_catches_everything'", output), output
    assert "2 test processes died" in output
    assert re.search(r"FAILED .*test_b_hanging.py::test_hangs", output), output
    assert "Timeout (>5.0s)" in output
    assert "in wait_elsewhere" in output, "the stacks of all threads"
    assert "in test_catches_everything" in output, "the stack of what had to be killed"
