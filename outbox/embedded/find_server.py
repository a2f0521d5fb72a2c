"""Finds or fetches the distribution of a search server and a Java for it. Starts nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from outbox.embedded.account import Account
from outbox.embedded.archive_list import java_for_this_machine
from outbox.embedded.errors import DistributionUnusable, JavaMissing
from outbox.embedded.fetching import fetched
from outbox.embedded.java import Java, JavaNeeds, find_java
from outbox.embedded.private import check_place
from outbox.embedded.products import PRODUCTS, EmbeddedProduct, OfVersion, release_of
from outbox.embedded.progress import Report

FETCHED_JAVA_MAJOR = 21


@dataclass(frozen=True)
class Distribution(OfVersion):
    """An unpacked search server."""

    home: Path
    product: EmbeddedProduct
    version: str

    def has_module(self, name: str) -> bool:
        return (self.home / "modules" / name).is_dir()


def existing_distribution(home: Path) -> Distribution:
    """The distribution in OUTBOX_ES_HOME. Raises if it cannot be used."""
    for product in PRODUCTS:
        jar = re.compile(rf"{product.name}-(\d+)\.(\d+\.\d+)\.jar")
        if found := next(filter(None, (jar.fullmatch(path.name) for path in home.glob("lib/*.jar"))), None):
            version = f"{found[1]}.{found[2]}"
            if int(found[1]) not in product.java_needs:
                raise DistributionUnusable(f"{home} contains {product.title} {version}")
            return Distribution(home.resolve(), product, version)
    raise DistributionUnusable(f"{home} contains no Elasticsearch or OpenSearch")


def fetched_distribution(data_dir: Path, wanted: str, report: Report) -> Distribution:
    """A release by its name; fetched at the first use."""
    release = release_of(wanted)
    return existing_distribution(fetched(release.archive, data_dir / release.name, report))


def find_supplies(
    shared: Path, version: str, home: Path | None, account: Account, report: Report
) -> tuple[Distribution, Java]:
    """Java comes first: finding it is quick, while fetching a server takes minutes."""
    check_place(shared)  # a Java in it will be run
    if home is not None:
        given = existing_distribution(home)
        return given, suitable_java(given.java_needs, account, shared, report, given.home)
    java = suitable_java(release_of(version).java_needs, account, shared, report)
    return fetched_distribution(shared, version, report), java


def fetch_java(shared: Path, report: Report) -> None:
    """Fetch the Java that is used if none of the machine fits. Does nothing if there is none for this machine."""
    if archive := java_for_this_machine():
        fetched(archive, _fetched_home(shared), report)


def _fetched_home(shared: Path) -> Path:
    return shared / f"java-{FETCHED_JAVA_MAJOR}"


def suitable_java(
    needs: JavaNeeds, account: Account, shared: Path, report: Report, distribution: Path | None = None
) -> Java:
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
