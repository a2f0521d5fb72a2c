"""Owns the list of combinations and which tests each is held to; it starts nothing."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "compat"

# What depends on a server or on the driver; layers of the product's own arithmetic depend on Python alone.
CORE = (
    "bulk", "bulk_index", "claim", "documents", "elasticsearch_replies", "guard", "migrations", "newer_deletes",
    "reclaim", "replay", "settle",
)  # fmt: skip
ACCEPTANCE = (
    "lab_1_killed_worker", "lab_2_elasticsearch_down", "lab_3_bad_op", "lab_4_attempts_used_up", "survival",
)  # fmt: skip


def _files(layer: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"tests/{layer}/test_{name}.py" for name in names)


# Besides the usual ones: what meets the answers of a search server, whose differences matter most there.
ANSWERS = (
    "bad_input", "bulk_bad_replies", "bulk_probe", "doctor", "elasticsearch_recovery", "embedded_opensearch", "pauses",
    "product", "rebuild", "red_shard", "refresh", "repair", "several_nodes", "verify",
)  # fmt: skip

SERVERS = ("tests/contract", *_files("integration", CORE), *_files("acceptance", ACCEPTANCE))
# The same on every search server.
SEARCH = (*SERVERS, *_files("integration", ANSWERS), *_files("acceptance", ("rebuild", "verify_commands")))
# On 2.19.4: the security plugin for 3 is not whole on Maven Central.
SECURED = _files("acceptance", ("search_logins", "secured_opensearch"))


@dataclass(frozen=True, slots=True)
class Combination:
    name: str
    what: str
    search: str = "elasticsearch-8"
    postgresql: int = 18
    python: str = "3.11"
    pooler: bool = False
    tests: tuple[str, ...] = SERVERS


COMBINATIONS = (
    Combination("elasticsearch-8", "Elasticsearch 8.14.1: the versions that every test run uses", tests=SEARCH),
    Combination(
        "elasticsearch-9",
        "Elasticsearch 9.4.3 (a Java of version 21 or later is needed); the same tests",
        search="elasticsearch-9",
        tests=SEARCH,
    ),
    Combination(
        "opensearch-2",
        "OpenSearch 2.19.6; the same tests, and least privilege on a secured 2.19.4",
        search="opensearch-2",
        tests=(*SEARCH, *SECURED),
    ),
    Combination(
        "opensearch-3",
        "OpenSearch 3.6.0 (a Java of version 21 or later is needed); the same tests",
        search="opensearch-3",
        tests=SEARCH,
    ),
    Combination("postgresql-15", "PostgreSQL 15 of Debian 12: no uuidv7(), older planner", postgresql=15),
    Combination("pgbouncer", "Debian's pgbouncer in transaction mode, four sessions for everyone", pooler=True),
    Combination(
        "python-3.13", "Python 3.13, all pinned packages; unit tests too", python="3.13", tests=("tests/unit", *SERVERS)
    ),
    Combination(
        "newest",
        "Elasticsearch 9.4.3, PostgreSQL 18 and Python 3.13 together",
        search="elasticsearch-9",
        python="3.13",
    ),
)
BY_NAME = {combination.name: combination for combination in COMBINATIONS}
