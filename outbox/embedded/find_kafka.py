"""Finds or fetches Kafka, Debezium and a Java for them. Starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from outbox.embedded.account import Account
from outbox.embedded.archive_list import DEBEZIUM
from outbox.embedded.errors import FolderUnreachable
from outbox.embedded.fetching import fetched
from outbox.embedded.find_server import suitable_java
from outbox.embedded.jar_fetching import fetched_jars
from outbox.embedded.jar_list import kafka_jars
from outbox.embedded.java import Java, JavaNeeds
from outbox.embedded.private import check_place
from outbox.embedded.progress import Report

# Tested on 17, 21 (also the wheel's, which lacks locales) and 25.
JAVA: Final = JavaNeeds(17, 99, locales=False)


def find_kafka(shared: Path, account: Account, report: Report) -> tuple[Path, Java]:
    """The folder of Kafka's jars, and a Java. Java comes first: finding it is quick, a download takes minutes."""
    check_place(shared)  # a Java in it will be run
    java = suitable_java(JAVA, account, shared, report)
    jars = kafka_jars()
    return _reachable(fetched_jars(jars, shared / jars.folder, report), account), java


def find_debezium(shared: Path, account: Account, report: Report) -> Path:
    """The folder that Kafka Connect searches for plugins; Debezium's connector for PostgreSQL is a folder in it."""
    home = shared / f"debezium-{DEBEZIUM.version}"
    return _reachable(fetched(DEBEZIUM, home, report), account)


def _reachable(home: Path, account: Account) -> Path:
    if not account.can_reach(home):
        raise FolderUnreachable(str(home))
    return home
