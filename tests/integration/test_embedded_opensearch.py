"""An embedded OpenSearch: kept data, and no mistaking one product for the other."""

import os
from pathlib import Path

import pytest

from labs.client import connect
from outbox.embedded import EmbeddedElasticsearch, EmbeddedOpenSearch, EmbeddedSearch
from outbox.embedded.errors import DistributionUnusable
from tests.fixtures.servers import PRODUCT


@pytest.mark.parametrize(
    ("kind", "jar", "complaint"),
    [
        (EmbeddedOpenSearch, "elasticsearch-8.14.1.jar", "contains Elasticsearch"),
        (EmbeddedElasticsearch, "opensearch-2.19.6.jar", "contains OpenSearch"),
    ],
)
def test_a_folder_of_the_other_product_is_refused(
    server_folder: Path, kind: type[EmbeddedSearch], jar: str, complaint: str
) -> None:
    home = server_folder / "home"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / jar).touch()
    with pytest.raises(DistributionUnusable, match=complaint):
        kind(server_folder / "server", home=home).launch()


@pytest.mark.opensearch
@pytest.mark.slow
def test_documents_and_port_survive_a_crash(server_folder: Path) -> None:
    server = EmbeddedOpenSearch(server_folder / "opensearch", version=os.environ[PRODUCT])
    with server, connect(server.url, request_timeout=60) as client:
        client.index(index="kept", id="1", document={"n": 42})
        port = server.port
        server.kill()
        assert not server.running
        server.start()
        client.cluster.health(index="kept", wait_for_status="yellow", timeout="60s")
        assert client.get(index="kept", id="1")["_source"] == {"n": 42}
        assert server.port == port
