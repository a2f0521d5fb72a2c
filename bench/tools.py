"""Programs of others in environments of their own under build/peers, made at the first use."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.result import CannotRun, progress

HOME = Path("build/peers").absolute()


def must(command: Sequence[str], problem: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=900)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotRun(f"{problem}: {last[:200]}")


def programs(name: str, *packages: str) -> Path:
    """The folder of the programs of an environment with these packages."""
    place = HOME / name
    stamp = place / "-".join(packages).replace("[binary]", "")
    if not stamp.exists():
        progress(f"installing {', '.join(packages)} into {HOME.name}/{name}")
        place.mkdir(parents=True, exist_ok=True)
        must([sys.executable, "-m", "venv", str(place)], "no virtual environment")
        must([str(place / "bin" / "pip"), "install", "-q", *packages], f"{name} cannot be installed")
        stamp.touch()
    return place / "bin"
