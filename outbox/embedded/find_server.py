"""Finds or fetches an Elasticsearch distribution and a Java for it. Starts nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.account import Account
from outbox.embedded.archive_list import ELASTICSEARCH_8, ELASTICSEARCH_9, Archive, java_for_this_machine
from outbox.embedded.errors import DistributionUnusable, JavaMissing
from outbox.embedded.fetching import fetched
from outbox.embedded.java import Java, JavaNeeds, find_java
from outbox.embedded.private import check_place
from outbox.embedded.progress import Report


@dataclass(frozen=True)
class Release:
    """An Elasticsearch that can be fetched."""

    version: str
    archive: Archive

    @property
    def java_needs(self) -> JavaNeeds:
        return JAVA_NEEDS[int(self.version.split(".")[0])]


RELEASES = {"8": Release("8.14.1", ELASTICSEARCH_8), "9": Release("9.4.3", ELASTICSEARCH_9)}
FETCHED_JAVA_MAJOR = 21
# Tested: 8.14.1 on 17 and 21, 9.4.3 on 25. Elasticsearch 9 needs jdk.jdi, which runtimes without development tools
# lack.
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
    """The distribution in OUTBOX_ES_HOME. Raises if it cannot be used."""
    versions = [re.fullmatch(r"elasticsearch-(\d+\.\d+\.\d+)\.jar", p.name) for p in home.glob("lib/*.jar")]
    found = next((match[1] for match in versions if match), None)
    if found is None:
        raise DistributionUnusable(f"{home} contains no Elasticsearch")
    if int(found.split(".")[0]) not in JAVA_NEEDS:
        raise DistributionUnusable(f"{home} contains Elasticsearch {found}")
    return Distribution(home.resolve(), found)


def release_of(wanted: str) -> Release:
    """By major or full version."""
    for major, release in RELEASES.items():
        if wanted in (major, release.version):
            return release
    known = ", ".join(release.version for release in RELEASES.values())
    raise DistributionUnusable(f"OUTBOX_ES_VERSION is {wanted!r}; available are {known}")


def fetched_distribution(data_dir: Path, wanted: str, report: Report) -> Distribution:
    """The release of a major version; fetched at the first use."""
    release = release_of(wanted)
    return existing_distribution(fetched(release.archive, data_dir / f"elasticsearch-{release.version}", report))


def find_supplies(
    shared: Path, version: str, home: Path | None, account: Account, report: Report
) -> tuple[Distribution, Java]:
    """Java comes first: finding it is quick, while fetching Elasticsearch takes minutes."""
    check_place(shared)  # a Java in it will be run
    if home is not None:
        given = existing_distribution(home)
        return given, _java(given.java_needs, account, shared, report, given.home)
    java = _java(release_of(version).java_needs, account, shared, report, None)
    return fetched_distribution(shared, version, report), java


def fetch_java(shared: Path, report: Report) -> None:
    """Fetch the Java that is used if none of the machine fits. Does nothing if there is none for this machine."""
    if archive := java_for_this_machine():
        fetched(archive, _fetched_home(shared), report)


def _fetched_home(shared: Path) -> Path:
    return shared / f"java-{FETCHED_JAVA_MAJOR}"


def _java(needs: JavaNeeds, account: Account, shared: Path, report: Report, distribution: Path | None) -> Java:
    """One of this machine, else a fetched one. Raises if neither fits."""
    fetched_home = _fetched_home(shared)
    try:
        return find_java(needs, account, shared, distribution, fetched_home)
    except JavaMissing:
        archive = java_for_this_machine()
        # It is a runtime without development tools: it does not fit either if one of their modules is needed.
        if archive is None or fetched_home.exists() or not needs.fit_runtime(FETCHED_JAVA_MAJOR):
            raise
        report("no suitable Java on this machine: fetching one")
        fetched(archive, fetched_home, report)
        return find_java(needs, account, shared, distribution, fetched_home)
