"""`python -m outbox.embedded`: only the servers, for scripts and development. It projects nothing.

    python -m outbox.embedded fetch [RELEASE]         download it, and a Java if none fits, unless already there
    python -m outbox.embedded fetch kafka             download Kafka (with Kafka Connect), and a Java if none fits
    python -m outbox.embedded fetch connect           the same, and Debezium's connector for PostgreSQL
    python -m outbox.embedded fetch java              download that Java even if another one fits (for the tests)
    python -m outbox.embedded serve [RELEASE]         run new servers until Ctrl-C or SIGTERM; prints their addresses

RELEASE is elasticsearch, elasticsearch-8, elasticsearch-9, opensearch, opensearch-2, opensearch-3 or a full version
such as opensearch-2.19.6; the default is OUTBOX_ES_VERSION, else Elasticsearch 8. OUTBOX_ES_VERSION, OUTBOX_ES_HOME and
OUTBOX_DATA_DIR have the same meaning as for `outbox up`.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from outbox.embedded.fetching import to_stderr
from outbox.embedded.folders import default_data_dir
from outbox.embedded.postgres import for_people
from outbox.embedded.server_account import Account
from outbox.embedded.stack import EmbeddedStack
from outbox.embedded.supplies import fetch_java, find_debezium, find_kafka, find_supplies
from outbox.errors import OutboxError

HEAP = "1g"
_RELEASE = re.compile(r"(elasticsearch|opensearch)[\w.-]*")


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 done, 2 invalid arguments."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(__doc__ or "")
        return 0
    try:
        match arguments:
            case ["fetch"]:
                fetch(_version())
            case ["fetch", "java"]:
                fetch_java(default_data_dir(), to_stderr)
            case ["fetch", "kafka" | "connect" as wanted]:
                fetch_kafka(wanted)
            case ["fetch", release] if _RELEASE.fullmatch(release):
                fetch(release)
            case ["serve", *given] if not given or _RELEASE.fullmatch(" ".join(given)):
                serve(" ".join(given) or _version())
            case _:
                to_stderr(__doc__ or "")
                return 2
    except OutboxError as problem:
        to_stderr(str(problem))
        return problem.exit_code
    return 0


def _version() -> str:
    return os.environ.get("OUTBOX_ES_VERSION", "8")


def _home() -> Path | None:
    given = os.environ.get("OUTBOX_ES_HOME")
    return Path(given) if given else None


def fetch(release: str) -> None:
    find_supplies(default_data_dir(), release, _home(), Account.for_servers(), to_stderr)


def fetch_kafka(wanted: str) -> None:
    shared, account = default_data_dir(), Account.for_servers()
    find_kafka(shared, account, to_stderr)
    if wanted == "connect":
        find_debezium(shared, account, to_stderr)


def serve(release: str) -> None:
    # Blocked before the servers start, so that no signal is lost.
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with EmbeddedStack(es_version=release, es_home=_home(), es_heap=HEAP, temporary=True) as stack:
        sys.stdout.write(f"export OUTBOX_TEST_DATABASE_URL={for_people(stack.database_url)}\n")
        sys.stdout.write(f"export OUTBOX_TEST_ELASTIC_URL={stack.elastic_url}\n")
        sys.stdout.flush()
        signal.sigwait(ends)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
