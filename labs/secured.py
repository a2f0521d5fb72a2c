"""An Elasticsearch with security on, for the labs about credentials; the usual server has none."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from elasticsearch import Elasticsearch

from outbox.embedded import EmbeddedElasticsearch


@contextmanager
def secured_elasticsearch(release: str) -> Iterator[tuple[str, Elasticsearch]]:
    """Its address, and a client with all privileges. The start takes half a minute."""
    password = secrets.token_urlsafe(18)
    with (
        EmbeddedElasticsearch.temporary(version=release, password=password) as server,
        Elasticsearch(server.url, basic_auth=("elastic", password), request_timeout=20, max_retries=0) as client,
    ):
        yield server.url, client
