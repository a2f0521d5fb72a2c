"""scripts/environment.sh: progress of pip in one or a few lines, all missing packages at once, loopback without a
proxy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
