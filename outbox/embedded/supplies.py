"""Finds or fetches what a server needs: a search server, Kafka or Debezium, and a Java for it. Starts nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outbox.embedded.errors import DistributionUnusable, FolderUnreachable, JavaMissing
from outbox.embedded.fetching import Report, fetched
from outbox.embedded.java import Java, JavaNeeds, find_java
from outbox.embedded.pins import DEBEZIUM, FETCHED_JAVA_MAJOR, JAVA_FOLDER, java_for_this_machine, kafka_jars
from outbox.embedded.products import PRODUCTS, OfVersion, release_of
from outbox.embedded.safe_files import check_place
from outbox.embedded.server_account import Account

# Tested on 17, 21 (also the wheel's, which lacks locales) and 25.
FOR_KAFKA: Final = JavaNeeds(17, 99, locales=False)


@dataclass(frozen=True)
class Distribution(OfVersion):
    """An unpacked search server."""

    home: Path

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
            return Distribution(product, version, home.resolve())
    raise DistributionUnusable(f"{home} contains no Elasticsearch or OpenSearch")


def fetched_distribution(shared: Path, wanted: str, report: Report) -> Distribution:
    """A release by its name; fetched at the first use."""
    return existing_distribution(fetched(release_of(wanted).archive, shared, report))


def find_supplies(
    shared: Path, version: str, home: Path | None, account: Account, report: Report
) -> tuple[Distribution, Java]:
    """Java comes first: finding it is quick, while fetching a server takes minutes."""
    if home is not None:
        given = existing_distribution(home)
        return given, _suitable_java(given.java_needs, account, shared, report, given.home)
    java = _suitable_java(release_of(version).java_needs, account, shared, report)
    return fetched_distribution(shared, version, report), java


def find_kafka(shared: Path, account: Account, report: Report) -> tuple[Path, Java]:
    """The folder of Kafka's jars, and a Java."""
    java = _suitable_java(FOR_KAFKA, account, shared, report)
    return _reachable(fetched(kafka_jars(), shared, report), account), java


def find_debezium(shared: Path, account: Account, report: Report) -> Path:
    """The folder that Kafka Connect searches for plugins; Debezium's connector for PostgreSQL is a folder in it."""
    return _reachable(fetched(DEBEZIUM, shared, report), account)


def _reachable(home: Path, account: Account) -> Path:
    if not account.can_reach(home):
        raise FolderUnreachable(str(home))
    return home


def fetch_java(shared: Path, report: Report) -> None:
    """Fetch the Java that is used if none of the machine fits. Does nothing if there is none for this machine."""
    if archive := java_for_this_machine():
        fetched(archive, shared, report)


def _suitable_java(
    needs: JavaNeeds, account: Account, shared: Path, report: Report, distribution: Path | None = None
) -> Java:
    """One of this machine, else a fetched one. Raises if neither fits."""
    check_place(shared)  # a Java in it will be run
    home = shared / JAVA_FOLDER
    try:
        return find_java(needs, account, shared, distribution, home)
    except JavaMissing:
        # It is a runtime without development tools: it does not fit either if one of their modules is needed.
        if java_for_this_machine() is None or home.exists() or not needs.fit_runtime(FETCHED_JAVA_MAJOR):
            raise
        report("no suitable Java on this machine: fetching one")
        fetch_java(shared, report)
        return find_java(needs, account, shared, distribution, home)
