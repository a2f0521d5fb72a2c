"""Owns that an Elasticsearch and a Java that fits are there before anything starts; it starts nothing."""

from __future__ import annotations

from pathlib import Path

from outbox.embedded.account import Account
from outbox.embedded.archives import java_for_this_machine
from outbox.embedded.distribution import Distribution, existing_distribution, fetched_distribution, release_of
from outbox.embedded.errors import JavaMissing
from outbox.embedded.fetching import fetched
from outbox.embedded.java import Java, JavaNeeds, find_java
from outbox.embedded.private import check_place
from outbox.embedded.progress import Report

FETCHED_MAJOR = 21


def find_supplies(
    shared: Path, version: str, home: Path | None, account: Account, report: Report
) -> tuple[Distribution, Java]:
    """Java first: whether one fits is known at once, and the fetch of Elasticsearch takes minutes."""
    check_place(shared)  # a Java in it is run
    if home is not None:
        given = existing_distribution(home)
        return given, _java(given.java_needs, account, shared, report, given.home)
    java = _java(release_of(version).java_needs, account, shared, report, None)
    return fetched_distribution(shared, version, report), java


def fetch_java(shared: Path, report: Report) -> None:
    """The one that is used where no Java of the machine fits. Nothing to do where there is none for this machine."""
    if archive := java_for_this_machine():
        fetched(archive, _fetched_home(shared), report)


def _fetched_home(shared: Path) -> Path:
    return shared / f"java-{FETCHED_MAJOR}"


def _java(needs: JavaNeeds, account: Account, shared: Path, report: Report, distribution: Path | None) -> Java:
    """One of this machine, else one that is fetched; raises when neither fits."""
    fetched_home = _fetched_home(shared)
    try:
        return find_java(needs, account, shared, distribution, fetched_home)
    except JavaMissing:
        archive = java_for_this_machine()
        # It is a runtime without development tools: where a module of theirs is needed, it would not do either.
        if archive is None or fetched_home.exists() or not needs.fit_runtime(FETCHED_MAJOR):
            raise
        report("no Java of this machine fits: fetching one")
        fetched(archive, fetched_home, report)
        return find_java(needs, account, shared, distribution, fetched_home)
