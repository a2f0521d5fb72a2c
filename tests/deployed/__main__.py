"""Owns the command line of scripts/deployed; the parts are beside it."""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deployed import alerts_part, docker_part, kubernetes_part, systemd_part, testcontainers_part
from tests.deployed.record import Outcome, record, save
from tests.deployed.shell import ROOT, DeploymentFailed, MissingSoftware, say

PARTS = {
    "docker": (docker_part.play, "docker-compose.infra.yml: scenario, dashboards"),
    "alerts": (alerts_part.play, "each alert of the rules fires and ends once, in a real Alertmanager"),
    "kafka": (
        docker_part.play_kafka,
        "with docker-compose.kafka.yml: events go through the log and Kafka; its alerts",
    ),
    "testcontainers": (testcontainers_part.play, "tests/contract and tests/integration on servers of the engine"),
    "systemd": (systemd_part.play, "the units under systemd as pid 1: hardening, credentials, watchdog"),
    "kubernetes": (kubernetes_part.play, "every overlay before a real API server, restricted; its pods on a node"),
    "chart": (kubernetes_part.play_chart, "helm renders the overlays' content, which the API server takes"),
}
LIMIT_SECONDS = 3600

EPILOG = """\
parts:
{parts}

exit codes: 0 all passed, 1 one failed, 2 usage, 3 one could not be run here (what is missing is said)

As root on Debian what is missing is set up: packages, an engine of its own, stand-ins for images of no registry.
Elsewhere the engine that is there is used. Everything that was started is stopped, and what it made is removed.
"""


class TooLate(BaseException):
    """Not an Exception: what waits for a probe takes those for a no."""


def main(arguments: list[str]) -> int:
    asked = _parser().parse_args(arguments)
    names = list(PARTS) if "all" in asked.parts else list(dict.fromkeys(asked.parts))
    outcomes = [_play(name, asked) for name in names]
    for outcome in outcomes:
        print(outcome.line)
    if asked.record:
        record(asked.folder / "results")
    words = {outcome.word for outcome in outcomes}
    return 1 if "FAILED" in words else 3 if "MISSING" in words else 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/deployed",
        description="Run the shipped deployment files for real, through one scenario.",
        epilog=EPILOG.format(parts="\n".join(f"  {name:<12} {what}" for name, (_, what) in PARTS.items())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("parts", nargs="+", choices=[*PARTS, "all"], metavar="PART", help=f"{', '.join(PARTS)} or all")
    place = ROOT / "build" / "deployed"
    made.add_argument("--folder", type=Path, default=place, help="where programs and images are kept")
    made.add_argument("--stand-ins", action="store_true", help="ask no registry for images")
    made.add_argument(
        "--record",
        action="store_true",
        help="write every result that is kept in the folder into docs/reliability/deployed.json",
    )
    made.add_argument(
        "--limit", type=int, default=LIMIT_SECONDS, metavar="S", help="seconds for each part (%(default)s)"
    )
    return made


def _play(name: str, asked: argparse.Namespace) -> Outcome:
    say(f"== {name}")
    outcome = Outcome.begun(name)
    began = time.monotonic()
    try:
        with _limit(asked.limit):
            # Both are filled as it goes on: what was found before a failure is kept.
            PARTS[name][0](asked.folder.resolve(), asked.stand_ins, outcome.figures, outcome.versions)
    except MissingSoftware as missing:
        outcome.word, outcome.detail = "MISSING", str(missing)
    except (DeploymentFailed, TooLate, OSError, subprocess.SubprocessError) as failed:
        outcome.word, outcome.detail = "FAILED", str(failed)
    outcome.seconds = round(time.monotonic() - began)
    save(outcome, asked.folder / "results")
    return outcome


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TooLate("not done within its limit")

    handler = signal.signal(signal.SIGALRM, late)
    rest, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest)
        signal.signal(signal.SIGALRM, handler)


if __name__ == "__main__":
    # Both take everything down; a shell starts what is in its background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
