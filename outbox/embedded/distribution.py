"""Owns what an Elasticsearch distribution is, where one comes from and which Java it needs; it starts nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.archives import ELASTICSEARCH_8, ELASTICSEARCH_9, Archive
from outbox.embedded.errors import DistributionUnusable
from outbox.embedded.fetching import fetched
from outbox.embedded.java import JavaNeeds
from outbox.embedded.progress import Report


@dataclass(frozen=True)
class Release:
    """A server that we know how to fetch."""

    version: str
    archive: Archive

    @property
    def java_needs(self) -> JavaNeeds:
        return JAVA_NEEDS[int(self.version.split(".")[0])]


RELEASES = {"8": Release("8.14.1", ELASTICSEARCH_8), "9": Release("9.4.3", ELASTICSEARCH_9)}
# Tried: 8.14.1 on 17 and 21, 9.4.3 on 25. Runtimes without development tools have no jdk.jdi, which 9's entitlements
# name.
JAVA_NEEDS = {8: JavaNeeds(17, 22), 9: JavaNeeds(21, 99, "jdk.jdi")}


@dataclass(frozen=True)
class Distribution:
    """An unpacked Elasticsearch."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def java_needs(self) -> JavaNeeds:
        return JAVA_NEEDS[self.major]

    def has_module(self, name: str) -> bool:
        return (self.home / "modules" / name).is_dir()


def existing_distribution(home: Path) -> Distribution:
    """What OUTBOX_ES_HOME names, or why it cannot be used."""
    versions = [re.fullmatch(r"elasticsearch-(\d+\.\d+\.\d+)\.jar", p.name) for p in home.glob("lib/*.jar")]
    found = next((match[1] for match in versions if match), None)
    if found is None:
        raise DistributionUnusable(f"{home} holds no Elasticsearch")
    if int(found.split(".")[0]) not in JAVA_NEEDS:
        raise DistributionUnusable(f"{home} holds Elasticsearch {found}")
    return Distribution(home.resolve(), found)


def release_of(wanted: str) -> Release:
    """By major version or in full."""
    for major, release in RELEASES.items():
        if wanted in (major, release.version):
            return release
    known = ", ".join(release.version for release in RELEASES.values())
    raise DistributionUnusable(f"OUTBOX_ES_VERSION is {wanted!r}; those that can be fetched are {known}")


def fetched_distribution(data_dir: Path, wanted: str, report: Report) -> Distribution:
    """The release of a major version, fetched the first time."""
    release = release_of(wanted)
    return existing_distribution(fetched(release.archive, data_dir / f"elasticsearch-{release.version}", report))
