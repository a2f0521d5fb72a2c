"""Creates a lab's target index: an alias of NAME-v1, and a template that forbids automatic creation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticsearch import Elasticsearch

from labs.client import server_of
from outbox.sink.index import GC_DELETES, TEMPLATE_PRIORITY

MAPPING: Mapping[str, Any] = {
    "properties": {
        "title": {"type": "text"},
        "content": {"type": "text"},
        "revision": {"type": "long"},
    }
}
# One node holds no replicas; a lab's index is small.
ONE_NODE = {"number_of_shards": 1, "number_of_replicas": 0}


def create(
    elastic: Elasticsearch, name: str, settings: Mapping[str, Any], mapping: Mapping[str, Any], wait: str = "1"
) -> None:
    """As `outbox index create` does. `wait`: for how many copies of each shard."""
    wanted = {"gc_deletes": GC_DELETES, **ONE_NODE, **settings}
    template = {
        "index_patterns": [name, f"{name}-v*"],
        "priority": TEMPLATE_PRIORITY,
        "template": {"settings": {"index": wanted}, "mappings": {**MAPPING, **mapping}},
    }
    dialect = server_of(elastic).dialect
    elastic.indices.put_index_template(name=name, **dialect.template(template))
    alias, settings = {name: {"is_write_index": True}}, dialect.for_create({})
    elastic.indices.create(index=f"{name}-v1", aliases=alias, settings=settings, wait_for_active_shards=wait)


def drop(elastic: Elasticsearch, name: str) -> None:
    elastic.indices.delete(index=f"{name}-v1", ignore_unavailable=True)
    elastic.options(ignore_status=404).indices.delete_index_template(name=name)
