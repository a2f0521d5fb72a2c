"""Owns another release of this program: its wheel unpacked beside, its commands and its daemons; it judges nothing."""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from labs.worker import Worker, environment
from outbox.embedded.process import free_port
from tests.compat.combination import RESULTS, ROOT
from tests.compat.ground import MissingSoftware

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class CodeRevision:
    """A revision's code; `code` None is this checkout. Both use the packages that are installed here."""

    name: str
    code: Path | None = None

    @classmethod
    def of(cls, revision: str) -> "CodeRevision":
        name = _git("rev-parse", "--short", f"{revision}^{{commit}}").decode().strip()
        folder = RESULTS / "releases" / name
        if not (folder / "outbox" / "__main__.py").exists():
            _unpack_wheel(name, folder)
        return cls(name, folder)

    def outbox(self, env: Mapping[str, str], *arguments: str) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "outbox", *arguments],
            env=environment(env, self.code),
            cwd=self.code or ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def daemon(self, name: str, label: str, env: Mapping[str, str], folder: Path) -> Worker:
        return Worker(name, label, {**env, "OUTBOX_METRICS_PORT": str(free_port())}, folder, self.code)


def _unpack_wheel(revision: str, folder: Path) -> None:
    """What a user of that revision had installed: a wheel has files that a checkout has elsewhere, or not at all."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(fileobj=BytesIO(_git("archive", revision))) as archive:
            archive.extractall(scratch, filter="data")
        build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "made")
        subprocess.run(build, cwd=scratch, check=True, capture_output=True, timeout=120)
        [wheel] = Path(scratch, "made").glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(folder)


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise MissingSoftware(f"git {' '.join(words)}: {done.stderr.decode().strip()}; the whole history is needed")
    return done.stdout
