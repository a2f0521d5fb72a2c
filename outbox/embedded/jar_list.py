"""Reads the lists of jars in `jars/`: Maven coordinates, digests, sizes. It fetches none of them.

A line is `SHA256 BYTES GROUP:ARTIFACT:VERSION`. `scripts/pin_jars.py` writes them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

# Without the exclusion Maven would add, and replace, versions by the wishes of the jars.
_DEPENDENCY = """\
    <dependency>
      <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_PROJECT = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox.embedded</groupId><artifactId>{0}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{1}  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Jar:
    """One jar in a Maven repository."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    def file_in(self, repository: Path) -> Path:
        return repository.joinpath(*self.group.split("."), self.artifact, self.version, self.name)


@dataclass(frozen=True)
class JarList:
    """The jars that together are one server."""

    title: str
    name: str
    jars: tuple[Jar, ...]

    @property
    def megabytes(self) -> int:
        return sum(jar.size for jar in self.jars) // 1_000_000 + 1

    @property
    def folder(self) -> str:
        """Another list is another folder: one that was fetched before a change lacks what was added."""
        pins = "".join(jar.sha256 for jar in self.jars)
        return f"{self.name}-{hashlib.sha256(pins.encode()).hexdigest()[:8]}"

    def as_project(self) -> str:
        """A project for Maven that depends on exactly these jars."""
        wanted = "".join(_DEPENDENCY.format(jar.group, jar.artifact, jar.version) for jar in self.jars)
        return _PROJECT.format(self.name, wanted)


def _jar(line: str) -> Jar:
    digest, size, coordinates = line.split()
    group, artifact, version = coordinates.split(":")
    return Jar(group, artifact, version, digest, int(size))


def read_jars(title: str, name: str) -> JarList:
    text = files(__package__).joinpath("jars", f"{name}.txt").read_text(encoding="utf-8")
    return JarList(title, name, tuple(_jar(line) for line in text.splitlines() if line and line[0] != "#"))


def kafka_jars() -> JarList:
    """The broker, its tools and Kafka Connect."""
    return read_jars("Kafka 4.1.0", "kafka-4.1.0")
