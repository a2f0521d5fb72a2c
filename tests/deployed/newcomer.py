"""Owns the README's Docker lines, followed from a fresh clone until the first document is found."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.deployed import compose
from tests.deployed.engine import Engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import ROOT, DeploymentFailed, await_until, run

SERVERS = re.compile(r"`(docker compose -f \S+ up -d --wait db es)`")
SETTINGS = re.compile(r"`(DATABASE_URL|ELASTIC_URL)=([^`]+)`")
SEARCH = re.compile(r"^ +(curl -s '.*')$", re.MULTILINE)
INSTALL_SECONDS = 900


def play(engine: Engine, figures: Figures) -> None:
    """Of what is committed; only the project's name and the folder of the data are not a newcomer's."""
    place = engine.folder / "newcomer"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = time.monotonic()
    run("git", "clone", "-q", ROOT, place / "clone")
    readme = (place / "clone" / "README.md").read_text()
    [servers], settings = SERVERS.findall(readme), dict(SETTINGS.findall(readme))
    env = {name: value for name, value in engine.env.items() if not name.startswith(("OUTBOX_", "ELASTIC_"))}
    env |= {"COMPOSE_PROJECT_NAME": compose.PROJECT, "OUTBOX_DATA_DIR": str(place / "data")}
    try:
        run("sh", "-ec", servers, env=env, cwd=place / "clone")
        figures["found"] = _first_document(place, {**env, **settings})
        figures["minutes"] = round((time.monotonic() - began) / 60, 1)
    finally:
        down = "docker compose -f docker-compose.infra.yml down -v"
        run("sh", "-ec", down, env=env, cwd=place / "clone", check=False)
        shutil.rmtree(place, ignore_errors=True)


def _first_document(place: Path, env: dict[str, str]) -> int:
    log = place / "run.log"
    with log.open("w") as output:
        started = subprocess.Popen(
            ["scripts/run"],
            cwd=place / "clone",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        await_until(lambda: _hits(log) or started.poll() is not None, "a document is found", INSTALL_SECONDS)
        if started.poll() is not None:
            raise DeploymentFailed(f"scripts/run ended with {started.returncode}: {log.read_text()[-2000:]}")
        return _hits(log)
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.wait(90)
        except subprocess.TimeoutExpired:
            os.kill(started.pid, signal.SIGKILL)
            started.wait(10)


def _hits(log: Path) -> int:
    """By the command that was printed."""
    if not (found := SEARCH.search(log.read_text())):
        return 0
    return int(json.loads(run("sh", "-ec", found[1], limit=20))["hits"]["total"]["value"])
