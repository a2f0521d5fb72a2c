"""`outbox verify` and `outbox repair` as people call them: exit codes, JSON, what daemons then show."""

import signal
import sys
from functools import partial

import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.bustle import Shop, open_shop
from tests.fixtures.commands import Outbox
from tests.fixtures.processes import RunningProcess, StartProcess


@pytest.fixture
def shop(database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess) -> Shop:
    return open_shop(database, elastic_url, absent_index, es, start_process, 300, daemons=1)


def shows(daemon: RunningProcess, line: str) -> bool:
    return line in daemon.wait_for_http("/metrics")


def test_drift_is_found_counted_repaired_and_gone(shop: Shop) -> None:
    clean = shop.outbox("verify", "--json")
    assert clean.code == 0, clean
    assert (clean.json["compared"], clean.json["drift"]) == (300, 0)

    shop.es.delete(index=shop.alias, id="article:1")
    shop.es.index(index=shop.alias, id="article:2", document={"title": "by hand"})
    shop.es.index(index=shop.alias, id="article:ghost", document={"title": "added by hand"})
    dirty = shop.outbox("verify", "--json")
    assert dirty.code == 1, dirty
    assert {k: dirty.json[k] for k in ("missing", "different", "orphaned", "stale", "unknown")} == {
        "missing": 1,
        "different": 1,
        "orphaned": 1,
        "stale": 0,
        "unknown": 0,
    }
    assert [f["id"] for f in dirty.json["first"]["orphaned"]] == ["article:ghost"]
    told = shop.outbox("verify")
    assert told.code == 1
    assert "3 documents" in told.out
    assert "article:2" in told.out

    metrics = shop.daemons[0]
    for kind in ("missing", "different", "orphaned"):
        line = f'outbox_drift_documents{{kind="{kind}",projection="search_index_to_elastic"}} 1.0'
        metrics.wait_until(partial(shows, metrics, line), line)

    assert shop.outbox("repair").code == 2, "off a terminal it needs --dry-run or --yes"
    dry = shop.outbox("repair", "--dry-run", "--json")
    assert (dry.code, dry.json["planned"], dry.json["dry_run"]) == (0, 3, True)
    assert shop.value("select count(*) from search_outbox_events where idempotency_key like 'repair:%%'") == 0
    partly = shop.outbox("repair", "--yes", "--limit", "1")
    assert (partly.code, "1 events written" in partly.out) == (3, True), partly
    shop.caught_up()
    fixed = shop.outbox("repair", "--yes", "--json", "--by", "alice", "--reason", "edited by hand")
    assert fixed.code == 0, fixed
    assert fixed.json["written"] == 2
    again = shop.outbox("verify", "--json")
    assert (again.code, again.json["drift"]) == (0, 0), again
    summary = "select detail ->> 'events' from search_outbox_audit where action = 'REPAIR_SUMMARY' and actor = 'alice'"
    assert shop.value(summary) == "2"
    # The orphan is found last: only the comparison after both repairs is without it.
    gone = 'outbox_drift_documents{kind="orphaned",projection="search_index_to_elastic"} 0.0'
    metrics.wait_until(lambda: gone in metrics.wait_for_http("/metrics"), gone)
    lines = metrics.wait_for_http("/metrics").splitlines()
    stamp = next(line for line in lines if line.startswith("outbox_verify_timestamp"))
    finished = shop.value(
        "select extract(epoch from finished_at)::float8 from search_outbox_verifications order by id desc limit 1"
    )
    assert float(stamp.split()[-1]) == pytest.approx(finished, abs=0.01)
    shop.es.index(index=shop.alias, id="someone-elses", document={})
    unknown = shop.outbox("verify", "--json")
    assert (unknown.code, unknown.json["unknown"]) == (3, 1), "inconclusive"


def test_ctrl_c_leaves_a_cancelled_comparison_and_no_point_in_time(shop: Shop, start_process: StartProcess) -> None:
    running = start_process([sys.executable, "-m", "outbox", "verify", "--rate", "20"], **shop.env)
    running.wait_until(
        lambda: shop.value("select count(*) from search_outbox_verifications where compared > 0"), "its first page"
    )
    running.signal(signal.SIGINT)
    assert running.wait() == 130
    assert shop.value("select status from search_outbox_verifications order by id desc limit 1") == "cancelled"


def test_wrong_wishes_and_servers_leave_by_their_codes(outbox_here: Outbox) -> None:
    assert outbox_here("verify", "--sample", "0").code == 2
    assert outbox_here("verify", "--rate", "-1").code == 2
    no_view = outbox_here("verify")
    assert (no_view.code, no_view.out) == (78, "")
    assert "outbox migrate --by-entity" in no_view.err
    assert outbox_here("verify", DATABASE_URL="postgresql://127.0.0.1:1/x").code == 75
    assert outbox_here("migrate", "--by-entity").code == 0
    assert outbox_here("verify", ELASTIC_URL="http://127.0.0.1:1").code == 75
    assert outbox_here("verify", ELASTIC_INDEX="no-such-index").code == 78
    assert outbox_here("verify").code == 0
