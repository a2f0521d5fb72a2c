"""The fixtures give what they promise: real servers, fresh databases, fresh indexes."""

from pathlib import Path

import psycopg
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures import servers


def test_an_empty_database_holds_no_table_of_ours(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        found = connection.execute("select to_regclass('search_outbox_events')").fetchone()
    assert found == (None,)


def test_a_database_is_migrated_and_fresh(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from search_outbox_events").fetchone() == (0,)


@pytest.mark.parametrize("round_number", [1, 2])
def test_each_test_gets_an_empty_index(es: Elasticsearch, index: str, round_number: int) -> None:
    es.index(index=index, id=str(round_number), document={"n": round_number}, refresh=True)
    assert es.count(index=index)["count"] == 1


def test_older_servers_are_older_than_the_usual_one(older_postgres_url: str) -> None:
    with psycopg.connect(older_postgres_url) as connection:
        assert 150000 <= connection.info.server_version < 180000


def test_data_lies_in_memory_only_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ROOM_BYTES", 1)
    assert servers.in_memory(tmp_path) is not None
    assert servers.in_memory(tmp_path / "absent") is None
    monkeypatch.setattr(servers, "ROOM_BYTES", 1 << 60)
    assert servers.in_memory(tmp_path) is None
