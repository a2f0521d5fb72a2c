"""scripts/environment.sh: progress of pip in one or a few lines, all missing packages at once, loopback without a
proxy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# A fake .venv/bin/python: prints what pip prints for 40 packages, and exits with the given code.
PIP = """#!/bin/bash
for n in {1..40}; do echo "Collecting package-$n"; echo "  Downloading package_$n.whl"; done
echo "Installing collected packages: all"
[ "$PIP_ENDS" = 0 ] || echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
exit "$PIP_ENDS"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the script and an environment whose pip is ours."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "environment.sh", tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP)
    python.chmod(0o755)
    return tmp_path


def sourced(
    checkout: Path, commands: str, stderr: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    script = f". {checkout}/scripts/environment.sh\n{commands}"
    environ = {"PATH": "/usr/bin:/bin", "PIP_ENDS": "0", **env}
    return subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=False,
        timeout=30,
    )


def test_when_pip_fails_all_that_it_wrote_is_shown(checkout: Path) -> None:
    done = sourced(checkout, "pip_install 40 -r some.txt; echo went on", PIP_ENDS="2")
    assert done.returncode == 1
    assert "Downloading package_7.whl" in done.stderr
    assert "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert "exit code 2" in done.stderr
    assert "went on" not in done.stdout


# A Python that has none of the packages: -S leaves site-packages out, -I what the environment adds.
GUIDED = ["search_outbox_worker.py", "search_outbox_replay_failed.py", "load_generate_blocks.py"]
BARE = [sys.executable, "-I", "-S"]


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A checkout with the program and the guide's scripts, without .venv."""
    for name in ("outbox", "labs"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def started(checkout: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -I also leaves out the script's own folder, which `python scripts/NAME.py` has.
    code = (
        "import runpy, sys; sys.path.insert(0, 'scripts'); sys.argv = sys.argv[1:];"
        " runpy.run_path(sys.argv[0], None, '__main__')"
    )
    command = [*BARE, "-c", code, f"scripts/{script}", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("script", GUIDED)
def test_a_script_of_the_guide_without_an_environment_says_in_one_line_what_makes_it(
    scripts: Path, script: str
) -> None:
    ended = started(scripts, script, "--help")
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"{script}: the package ")
    assert line.endswith(" is missing; run scripts/devtest_db_5435_start.sh, which makes a .venv that has it")
