"""Owns the part `testcontainers`: the tests that meet a server, on servers of an engine."""

import subprocess
import sys
from pathlib import Path

from tests.compat.outcome import read_junit
from tests.deployed import images
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures, Versions
from tests.deployed.shell import ROOT, DeploymentFailed
from tests.fixtures.servers import ELASTICSEARCH_IMAGE, POSTGRES_IMAGE

TESTS = ("tests/contract", "tests/integration")


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        kinds = images.provide(engine, (POSTGRES_IMAGE, ELASTICSEARCH_IMAGE), only_standins)
        versions |= {**engine.versions, "images": kinds}
        env = {name: value for name, value in engine.env.items() if not name.startswith(("OUTBOX_", "ELASTIC_"))}
        # Its image removes what a killed run leaves; there is no package of it, and this engine is emptied anyway.
        env["OUTBOX_TEST_BACKEND"] = "containers"
        env.setdefault("TESTCONTAINERS_RYUK_DISABLED", str(engine.own).lower())
        junit, log = folder / "testcontainers.xml", folder / "testcontainers.log"
        junit.unlink(missing_ok=True)
        options = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", f"--junitxml={junit}"]
        with log.open("w") as output:
            argv = [sys.executable, "-m", "pytest", *options, *TESTS]
            done = subprocess.run(argv, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT, check=False)
        passed, failed, skipped, seconds = read_junit(junit) if junit.exists() else (0, 0, 0, 0)
        figures |= {
            "tests": list(TESTS),
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
            "test_seconds": seconds,
        }
        if done.returncode or not passed:
            raise DeploymentFailed(f"pytest ended with {done.returncode}, {failed} failed: see {log}")
