"""The built wheel, installed by pip where nothing else is: what it asks for is enough for `outbox up`."""

import json
import signal
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from zipfile import Path as ZipPath

import pytest
from elasticsearch import Elasticsearch
from packaging.requirements import Requirement

from outbox import __version__
from tests.fixtures.processes import ROOT, StartProcess, clean_environment

EXTRAS = {"embedded", "console"}
# So that neither the checkout nor its tests are found by where the process stands.
ELSEWHERE = ["sh", "-c", 'cd "$0" && exec "$@"']


def built(folder: Path) -> Path:
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def asked_for(wheel: Path) -> set[str]:
    """Every package that the wheel and its extras need, and what these need."""
    [metadata] = (entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    lines = (metadata / "METADATA").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    own = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    left, seen = needs(own, EXTRAS), set[tuple[str, str]]()
    while new := left - seen:
        seen |= new
        left = set().union(*(needs(distribution(name).requires or [], {extra}) for name, extra in new))
    return {name for name, _ in seen}


def needs(lines: list[str], extras: set[str]) -> set[tuple[str, str]]:
    """Names, each with an extra that is wanted of it, or with none."""
    wanted = [Requirement(line) for line in lines]
    meant = [one for one in wanted if not one.marker or any(one.marker.evaluate({"extra": e}) for e in {"", *extras})]
    return {(one.name, extra) for one in meant for extra in ("", *one.extras)}


def empty_environment(folder: Path, packages: set[str]) -> Path:
    """As `pip install` of these would leave it; their files are linked, because fetching them again takes a minute."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    here = Path(sysconfig.get_path("purelib"))
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in packages:
        files = (PurePosixPath(file).parts[0] for file in distribution(name).files or [])
        for top in {part for part in files if part not in ("..", "__pycache__")}:
            if not (there / top).exists():
                (there / top).symlink_to(here / top)
    return folder / "bin"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """`bin` of an environment that has the wheel, and of all other packages only what the wheel asks for."""
    wheel = built(tmp_path / "dist")
    programs = empty_environment(tmp_path / "environment", asked_for(wheel))
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--quiet", f"{wheel}[{','.join(sorted(EXTRAS))}]"], check=True, cwd=tmp_path)
    return programs


@pytest.mark.release("it builds and installs a wheel, as step 12 of a release does")
def test_outbox_up_works_from_the_wheel_in_an_empty_environment(
    programs: Path,
    start_process: StartProcess,
    elastic_url: str,
    absent_index: str,
    es: Elasticsearch,
    server_folder: Path,
    tmp_path: Path,
) -> None:
    where = [*ELSEWHERE, str(tmp_path)]
    version = subprocess.check_output([*where, programs / "outbox", "--version"], text=True, env=clean_environment({}))
    assert __version__ in version
    up = start_process(
        [*where, str(programs / "outbox"), "up", "--json", "--rate", "20"],
        DATABASE_URL=None,  # so it starts the PostgreSQL that its extra brings
        ELASTIC_URL=elastic_url,
        ELASTIC_INDEX=absent_index,
        OUTBOX_DATA_DIR=str(server_folder),
    )
    told = json.loads(up.wait_for_line('"metrics_url"'))
    assert es.count(index=told["index"])["count"] > 0
    assert told["console_url"], "its extra is installed"
    assert list(server_folder.glob("stacks/*/postgresql/*/PG_VERSION")), "so is the one that brings PostgreSQL"
    up.signal(signal.SIGINT)
    assert up.wait() == 0, up.output
