"""Evidence that the checks work: each known bug, planted into a copy of the code, is found by its check.

The checks run as in the quick run: the environment that asks for more is not handed on.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fixtures.processes import ROOT, clean_environment
from tests.seeded.bugs import BUGS, Bug

COPIED = ("outbox", "sql", "tests", "docs", "labs", "scripts", "pyproject.toml")
# What a check does not need, and what would measure or time the copy.
LEFT_OUT = ("no:cov", "no:xdist", "no:schemathesis", "no:cacheprovider", "no:playwright")
AT_ONCE = 2  # a run is mostly one busy core


class Ran(NamedTuple):
    code: int
    said: str


def copy_of_the_code(folder: Path) -> Path:
    """With its bytecode, which holds for a file of the same age and size: what a patch writes is compiled anew."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("vendor"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def plant(bug: Bug, folder: Path) -> None:
    """git writes a patched file anew, so what is linked stays as it was."""
    done = subprocess.run(["git", "apply", str(bug.patch)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{bug.name} no longer fits the code, make its patch anew:\n{done.stderr}"


def run_checks(folder: Path, checks: Iterable[str], servers: dict[str, str | None]) -> Ran:
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=line", *(f"-p{name}" for name in LEFT_OUT), *checks]
    environment = clean_environment(servers)
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1000)
    return Ran(done.returncode, done.stdout + done.stderr)


def spoil_and_check(bug: Bug, pristine: Path, folder: Path, servers: dict[str, str | None]) -> Ran:
    shutil.copytree(pristine, folder, copy_function=os.link)
    try:
        plant(bug, folder)
        return run_checks(folder, bug.nodes, servers)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_code(tmp_path_factory.mktemp("seeded") / "pristine")


@pytest.fixture(scope="session")
def servers(postgres_url: str, elastic_url: str) -> dict[str, str | None]:
    """This run's own."""
    return {"OUTBOX_TEST_DATABASE_URL": postgres_url, "OUTBOX_TEST_ELASTIC_URL": elastic_url}


@pytest.fixture(scope="session")
def found(
    request: pytest.FixtureRequest, pristine: Path, servers: dict[str, str | None]
) -> Iterator[Callable[[Bug], Ran]]:
    """Every bug that is asked for in this run, two at a time from the first test on."""
    planted = [item for item in request.session.items if "found" in getattr(item, "fixturenames", ())]
    specs = [getattr(item, "callspec", None) for item in planted]
    asked = {spec and spec.params.get("bug") for spec in specs}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running: dict[str, Future[Ran]] = {
            bug.name: pool.submit(spoil_and_check, bug, pristine, pristine.with_name(bug.name), servers)
            for bug in BUGS
            if bug in asked
        }
        yield lambda bug: running[bug.name].result(600)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_bug_still_fits_the_code(bug: Bug) -> None:
    command = ["git", "apply", "--check", str(bug.patch)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, f"make its patch anew:\n{checked.stderr}"


@pytest.mark.release(
    "the checks themselves are in the quick run; that each finds its bug takes five minutes", keep=("M1", "M14")
)
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_seeded_bug_is_found_by_each_check_that_is_named_for_it(bug: Bug, found: Callable[[Bug], Ran]) -> None:
    code, said = found(bug)
    assert code == 1, f"{bug.name} was not found, or the checks could not run:\n{said[-3000:]}"
    for check in bug.nodes:
        assert re.search(rf"^FAILED {re.escape(check)}", said, re.MULTILINE), f"{check} misses it:\n{said[-3000:]}"


@pytest.mark.slow
@pytest.mark.release("the quick run has the same checks")
def test_without_a_bug_the_same_checks_pass_in_the_same_copy(pristine: Path, servers: dict[str, str | None]) -> None:
    """So that what fails above fails by the bug, and not by the copy."""
    checks = dict.fromkeys(check for bug in BUGS for check in bug.nodes)
    code, said = run_checks(pristine, checks, servers)
    assert code == 0, said[-3000:]
