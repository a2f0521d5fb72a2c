"""Owns how commands are run: with a limit, and with their output in the error if they fail."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 900.0


class MissingSoftware(Exception):
    """Something is not on this machine, and could not be brought; the text says what and what was tried."""


class DeploymentFailed(Exception):
    """A step of the scenario did not end as it must."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(
    *argv: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    text: str | None = None,
    limit: float = LIMIT_SECONDS,
    check: bool = True,
) -> str:
    """What it printed; with `check`, another exit code than 0 is an error that has its output."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            env=None if env is None else dict(env),
            cwd=cwd,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise DeploymentFailed(f"{' '.join(map(str, argv[:6]))}: not done within {limit:.0f} s") from late
    if check and done.returncode:
        raise DeploymentFailed(f"{' '.join(map(str, argv[:6]))}: exit {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def ask(*argv: str, limit: float = 30) -> str:
    """What a command prints, or nothing where it is missing or fails."""
    if not shutil.which(argv[0]):
        return ""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, check=False)
    return done.stdout if done.returncode == 0 else ""


def await_until(probe: Callable[[], object], what: str, within: float = 120.0) -> float:
    """Seconds until the probe's reply is true; its own errors count as no."""
    began = time.monotonic()
    last = ""
    while time.monotonic() - began < within:
        try:
            if probe():
                return time.monotonic() - began
            last = ""
        except Exception as error:  # any: what is not there yet fails in many ways
            last = f" ({type(error).__name__}: {error})"
        time.sleep(0.25)
    raise DeploymentFailed(f"{what}: not within {within:.0f} s{last}")
