"""`--parallel` as people use it: real processes, kill -9 of any of them, Ctrl-C, `--resume`; writes are counted."""

import os
import random
import signal
import sys
import time
from contextlib import suppress

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.reindex.copier import PAGE
from tests.fixtures.commands import Outbox
from tests.fixtures.depth import depth
from tests.fixtures.failures import value
from tests.fixtures.joined import fill_skewed
from tests.fixtures.processes import RunningProcess, StartProcess

SIZE = 12_000
# All of the drill, ten kills of each: OUTBOX_TEST_SLOW=1 scripts/test tests/acceptance/test_parallel_commands.py
KILLS = depth(1, 3, 10)
PAGES_BETWEEN_KILLS = 4  # at most: what is left after the last kill ends by itself
HELD = "select owner from search_outbox_rebuild_parts where state = 'open' and owner is not null"
WRITTEN = "select coalesce(sum(written), 0) from search_outbox_rebuild_parts"


@pytest.fixture
def table(connection: psycopg.Connection) -> psycopg.Connection:
    fill_skewed(connection, SIZE)
    return connection


@pytest.fixture
def counted(es: Elasticsearch, servers: dict[str, str | None]) -> "Counted":
    return Counted(es, str(servers["ELASTIC_INDEX"]))


class Counted:
    """What the index holds, and what it was given."""

    def __init__(self, es: Elasticsearch, index: str) -> None:
        self.es, self.index = es, index

    def writes(self) -> int:
        stats = self.es.indices.stats(index=self.index, metric="indexing")
        return int(stats["_all"]["primaries"]["indexing"]["index_total"])

    def documents(self) -> int:
        self.es.indices.refresh(index=self.index)
        return int(self.es.count(index=self.index)["count"])


def working(table: psycopg.Connection) -> list[int]:
    """The processes that hold parts."""
    return [int(owner.split(":")[1]) for (owner,) in table.execute(HELD).fetchall()]


def largest_part(table: psycopg.Connection) -> int:
    return value(table, "select max(written + newer + refused) from search_outbox_rebuild_parts")


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def start(start_process: StartProcess, servers: dict[str, str | None], *more: str) -> RunningProcess:
    return start_process([sys.executable, "-m", "outbox", "backfill", "--parallel", "2", *more], **servers)


def test_kill_9_of_processes_that_hold_parts_loses_nothing_and_repeats_a_part_at_most(
    connection: psycopg.Connection,
    outbox: Outbox,
    servers: dict[str, str | None],
    start_process: StartProcess,
    counted: Counted,
) -> None:
    table, size = connection, KILLS * PAGES_BETWEEN_KILLS * PAGE
    fill_skewed(table, size)
    backfill = start(start_process, servers, "--rate", "2500", "--json")
    killed, chance = 0, random.Random(24)
    while killed < KILLS and backfill.returncode is None:
        before = value(table, WRITTEN)
        backfill.wait_until(lambda past=before: value(table, WRITTEN) > past, "a page")  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.4))
        if pids := working(table):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
                killed += 1
    assert backfill.wait() == 0, backfill.output
    assert killed == KILLS, backfill.output
    assert value(table, "select written from search_outbox_backfills") == size
    assert counted.documents() == size
    twice = counted.writes() - size
    print(f"{killed} kills, {twice:,} documents written twice, largest part {largest_part(table):,}")
    assert 0 <= twice <= killed * largest_part(table)
    assert outbox("verify", "--rate", "0").code == 0


def test_ctrl_c_ends_all_processes_and_says_how_to_go_on(
    table: psycopg.Connection, outbox: Outbox, servers: dict[str, str | None], start_process: StartProcess
) -> None:
    backfill = start(start_process, servers, "--rate", "2000")
    backfill.wait_until(lambda: value(table, WRITTEN) >= 2_000 and len(working(table)) == 2, "some pages")
    pids = working(table)
    backfill.signal(signal.SIGINT)
    assert backfill.wait() == 130, backfill.output
    assert not any(map(is_alive, pids))
    assert "outbox backfill --resume" in backfill.output
    assert value(table, "select count(*) from search_outbox_rebuild_parts where owner is not null") == 0
    assert outbox("backfill", "--resume").code == 0
    assert outbox("verify", "--rate", "0").code == 0
