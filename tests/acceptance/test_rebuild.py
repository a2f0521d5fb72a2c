"""A new index under live writes, with real daemons, a reader at the alias, and kill -9 wherever it hurts."""

import json
from pathlib import Path

import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.bustle import NEW_MAPPING, Shop, bustling, open_shop
from tests.fixtures.processes import StartProcess

SIZE = 5_000
RATE = 50.0


@pytest.fixture
def mapping(tmp_path: Path) -> str:
    file = tmp_path / "mapping.json"
    file.write_text(json.dumps(NEW_MAPPING))
    return str(file)


@pytest.fixture
def shop(database: str, elastic_url: str, absent_index: str, es: Elasticsearch, start_process: StartProcess) -> Shop:
    return open_shop(database, elastic_url, absent_index, es, start_process, SIZE)


def title_type(shop: Shop) -> str:
    mapping = shop.es.indices.get_mapping(index=shop.alias)
    return str(next(iter(mapping.values()))["mappings"]["properties"]["title"]["type"])


def test_a_rebuild_under_live_writes_is_seen_by_nobody_and_loses_nothing(shop: Shop, mapping: str) -> None:
    assert title_type(shop) == "text"
    with bustling(shop, RATE) as (changes, reader):
        done = shop.outbox("rebuild", "--mapping", mapping, "--yes", "--rate", "0", "--by", "alice", "--reason", "why")
        assert done.code == 0, done
        assert "No drift" in done.err
        assert shop.behind() == [f"{shop.alias}-v2"]
        assert title_type(shop) == "keyword"
        after = shop.outbox("verify", "--rate", "0")
        assert after.code == 0, after
        back = shop.outbox("rebuild", "--rollback", "--yes")
        assert back.code == 0, back
        assert shop.behind() == [f"{shop.alias}-v1"]
        old = shop.outbox("verify", "--rate", "0")
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
