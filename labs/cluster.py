"""A cluster of several Elasticsearch or OpenSearch nodes on loopback, for the labs about one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from elasticsearch import Elasticsearch

from labs.client import connect
from outbox.embedded import EmbeddedSearch
from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.process import free_port
from outbox.embedded.products import OPENSEARCH
from outbox.embedded.server import remove_abandoned
from outbox.embedded.stack import search_server

HEAP = "384m"
PATIENCE_SECONDS = 300


@contextmanager
def cluster_of(count: int, release: str) -> Iterator[tuple[Sequence[EmbeddedSearch], Elasticsearch]]:
    """The nodes, and a client that knows all of them. The start takes a minute, on a busy machine two."""
    with ExitStack() as undo:
        remove_abandoned(default_data_dir())
        folder = undo.enter_context(temporary_folder(default_data_dir()))
        transports = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        kind = search_server(release)
        nodes = [
            kind(folder / f"node-{number}", version=release, heap=HEAP, settings=_settings(kind, transports, number))
            for number in range(count)
        ]
        for node in nodes:
            undo.callback(node.stop)
            node.launch()
        for node in nodes:
            node.ready_seconds = PATIENCE_SECONDS
            node.await_ready()
        urls = [node.url for node in nodes]
        client = undo.enter_context(
            connect(urls, request_timeout=20, max_retries=count, retry_on_timeout=True, retry_on_status=(503,))
        )
        patient = client.options(request_timeout=PATIENCE_SECONDS)
        patient.cluster.health(wait_for_nodes=str(count), timeout=f"{PATIENCE_SECONDS}s")
        yield nodes, client


def _settings(kind: type[EmbeddedSearch], transports: Sequence[str], number: int) -> dict[str, object]:
    several, first = ("zen", "cluster_manager") if kind.product == OPENSEARCH else ("multi-node", "master")
    return {
        "discovery.type": several,
        "discovery.seed_hosts": list(transports),
        f"cluster.initial_{first}_nodes": list(transports),
        "transport.port": int(transports[number].rpartition(":")[2]),
    }


def is_green(client: Elasticsearch, nodes: int) -> bool:
    """Whether all nodes and all copies of all shards are there."""
    health = client.cluster.health()
    return bool(health["number_of_nodes"] == nodes and health["status"] == "green")
