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


def test_off_a_terminal_pips_progress_is_a_few_lines(checkout: Path) -> None:
    done = sourced(checkout, "pip_install 40 -r some.txt")
    assert done.stderr.splitlines() == [f"installing packages: {n} of 40" for n in (10, 20, 30, 40)]


def test_when_pip_fails_all_that_it_wrote_is_shown(checkout: Path) -> None:
    done = sourced(checkout, "pip_install 40 -r some.txt; echo went on", PIP_ENDS="2")
    assert done.returncode == 1
    assert "Downloading package_7.whl" in done.stderr
    assert "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert "exit code 2" in done.stderr
    assert "went on" not in done.stdout


def test_all_missing_packages_are_named_in_one_message(checkout: Path, tmp_path: Path) -> None:
    """For someone who is not root: apt-get is out of reach, as it is without it."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("bash", "dirname"):
        (bare / name).symlink_to(shutil.which(name) or name)
    needs = "need_program no-such-jq jq; need_program bash bash; need_file '/no/such/*' postgresql; install_missing"
    done = sourced(checkout, needs, PATH=str(bare))
    assert done.returncode == 1
    assert done.stderr == "Missing programs. On Debian, as root: apt-get install jq postgresql\n"


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


EMBEDDED = """
[[ $2 == labs.devtest ]] && { echo "embedded wordloom_test"; exec sleep 2; }
"""
# An engine that answers everything but, where COMPOSE is no, `compose`.
DOCKER = """#!/bin/bash
[[ $1 == compose && $COMPOSE == no ]] && { echo "docker: unknown command: compose" >&2; exit 1; }
[[ $1 == compose && $2 != version ]] && echo "docker $*"
exit 0
"""


@pytest.mark.parametrize(("compose", "told"), [("yes", "docker compose "), ("no", "embedded wordloom_test")])
def test_without_compose_the_embedded_database_is_started(checkout: Path, compose: str, told: str) -> None:
    shutil.copy(ROOT / "scripts" / "devtest_db_5435_start.sh", checkout / "scripts")
    (checkout / "requirements").mkdir()
    for name in ("requirements/run.txt", "requirements/build.in", "pyproject.toml"):
        (checkout / name).write_text("a==1\n")
    programs = {"python": PIP.replace("\n", EMBEDDED, 1), "docker": DOCKER, "outbox": "#!/bin/bash\n"}
    for name, text in programs.items():
        (checkout / ".venv" / "bin" / name).write_text(text)
        (checkout / ".venv" / "bin" / name).chmod(0o755)
    env = {"PATH": f"{checkout}/.venv/bin:/usr/bin:/bin", "PIP_ENDS": "0", "COMPOSE": compose}
    command = [checkout / "scripts" / "devtest_db_5435_start.sh"]
    done = subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [part for part in ("docker compose ", "embedded wordloom_test") if part in done.stdout] == [told]
