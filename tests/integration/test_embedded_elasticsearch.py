"""An embedded Elasticsearch: kept data, security, HTTPS and settings as the labs want them."""

from pathlib import Path

import pytest
from elasticsearch import Elasticsearch

from outbox.embedded import EmbeddedElasticsearch

pytestmark = pytest.mark.slow


@pytest.mark.long  # two starts of a server of its own: 50 s beside other tests
def test_documents_and_port_survive_a_restart_and_a_crash(server_folder: Path) -> None:
    with EmbeddedElasticsearch(server_folder / "elasticsearch") as server, Elasticsearch(server.url) as client:
        client.index(index="kept", id="1", document={"n": 42})
        port = server.port
        server.kill()
        assert not server.running
        server.start()
        client.cluster.health(index="kept", wait_for_status="yellow", timeout="60s")
        assert client.get(index="kept", id="1")["_source"] == {"n": 42}
        assert server.port == port
