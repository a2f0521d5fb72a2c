"""A new index under live writes, with real daemons, a reader at the alias, and kill -9 wherever it hurts."""

import os
import signal

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.bustle import Shop, bustling, mapping, open_shop
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import eventually

__all__ = ["mapping"]
SIZE = int(os.environ.get("OUTBOX_TEST_REBUILD_ROWS", "5000"))
RATE = 50.0
WITHIN = 180 + SIZE / 100  # seconds of one command


@pytest.fixture
def shop(database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess) -> Shop:
    return open_shop(database, elastic_url, absent_index, es, start_process, SIZE)


def title_type(shop: Shop) -> str:
    mapping = shop.es.indices.get_mapping(index=shop.alias)
    return str(next(iter(mapping.values()))["mappings"]["properties"]["title"]["type"])


@pytest.mark.timeout(int(600 + SIZE / 50))
def test_a_rebuild_under_live_writes_is_seen_by_nobody_and_loses_nothing(shop: Shop, mapping: str) -> None:
    assert title_type(shop) == "text"
    with bustling(shop, RATE) as (changes, reader):
        who = ("--by", "alice", "--reason", "why")
        done = shop.outbox("rebuild", "--mapping", mapping, "--yes", "--rate", "0", *who, within=WITHIN)
        assert done.code == 0, done
        assert "No drift" in done.err
        assert shop.behind() == [f"{shop.alias}-v2"]
        assert title_type(shop) == "keyword"
        after = shop.outbox("verify", "--rate", "0", within=WITHIN)
        assert after.code == 0, after
        back = shop.outbox("rebuild", "--rollback", "--yes")
        assert back.code == 0, back
        assert shop.behind() == [f"{shop.alias}-v1"]
        old = shop.outbox("verify", "--rate", "0", within=WITHIN)
        assert old.code == 0, old
    assert reader.errors == []
    assert reader.looks > 100
    assert reader.least >= SIZE
    assert changes.made > RATE * 5
    shop.caught_up()
    assert len(set(shop.counts())) == 1
    assert shop.value("select count(*) from search_outbox_events where status = 'failed'") == 0
    entry = "select count(*) from search_outbox_audit where action = 'REBUILD_SWAPPED' and actor = 'alice'"
    assert shop.value(entry) == 1


@pytest.mark.release("every run kills around calls in process: tests/integration/test_rebuild.py")
@pytest.mark.slow
def test_kill_9_of_a_worker_during_a_rebuild_ends_right(shop: Shop, mapping: str) -> None:
    """Its batches are taken back, its successor reads the second target before its first write."""
    with bustling(shop, RATE):
        rebuild = shop.start_rebuild("--mapping", mapping, "--yes", "--rate", "1000")
        rebuild.wait_until(lambda: shop.step() == "backfilling", "the copying")
        shop.daemons[0].kill()
        shop.start_daemon()
        assert rebuild.wait(300) == 0, rebuild.output
    shop.caught_up()
    verified = shop.outbox("verify", "--rate", "0")
    assert verified.code == 0, verified


def test_a_worker_that_was_stopped_for_a_while_asks_before_it_writes(
    database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess, mapping: str
) -> None:
    """SIGSTOP: the rebuild does not wait for it; when it wakes up, its next claim goes to both indexes all the same."""
    shop = open_shop(database, elastic_url, absent_index, es, start_process, 200, daemons=0)
    worker = shop.start_daemon()
    shop.caught_up()
    worker.signal(signal.SIGSTOP)
    silent = "select extract(epoch from clock_timestamp() - heartbeat_at) > 6 from search_outbox_workers"
    eventually(lambda: shop.value(silent), what="a silent worker")
    ready = shop.outbox("rebuild", "--mapping", mapping, "--rate", "0")
    assert ready.code == 3, ready
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update articles set title = 'after' where id = '7'")
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op) values ('article', '7', 'upsert')"
        )
    worker.signal(signal.SIGCONT)
    shop.caught_up()
    assert es.get(index=f"{shop.alias}-v2", id="article:7")["_source"]["title"] == "after"


# As people call it


def test_a_rebuild_that_was_stopped_is_resumed_and_left_ready_where_nobody_can_be_asked(
    database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess, mapping: str
) -> None:
    shop = open_shop(database, elastic_url, absent_index, es, start_process, 50, daemons=1)
    none = shop.outbox("rebuild", "--status")
    assert (none.code, none.out) == (0, "There has never been a rebuild here.\n")
    begun = shop.start_rebuild("--mapping", mapping, "--rate", "10")
    begun.wait_until(lambda: shop.step() == "backfilling", "copying")
    assert begun.terminate() == 143
    assert shop.outbox("rebuild", "--status", "--json").json["held"] is None, "another host need not wait for a lease"
    ready = shop.outbox("rebuild", "--resume")
    assert ready.code == 3, ready
    assert "--swap" in ready.out + ready.err
    assert shop.behind() == [f"{shop.alias}-v1"]
    told = shop.outbox("rebuild", "--status", "--json")
    assert (told.json["step"], told.json["status"], told.json["held"]) == ("ready", "running", None)
    assert shop.outbox("rebuild", "--swap").code == 2, "off a terminal a swap needs --yes"
    assert shop.outbox("rebuild", "--mapping", mapping).code == 1, "only one at a time"
    assert shop.outbox("rebuild", "--rollback", "--yes").code == 1
    assert shop.outbox("rebuild", "--swap", "--yes").code == 0
    assert shop.behind() == [f"{shop.alias}-v2"]
    assert "swapped" in shop.outbox("rebuild", "--status").out
    assert shop.outbox("rebuild", "--finish", "--yes").code == 0
    assert list(es.indices.get(index=f"{shop.alias}-v*")) == [f"{shop.alias}-v2"]
