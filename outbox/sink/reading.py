"""Reads one document from Elasticsearch as the very text that it stores, for people who compare. It writes nothing."""

import json
from typing import Any, Final
from urllib.parse import quote

import orjson
from elastic_transport import JsonSerializer

from outbox.config import ElasticSettings
from outbox.errors import ElasticsearchDown
from outbox.sink.client import NoReply, connect

# A page waits for this; projection does not.
READ_SECONDS: Final = 2.0
_SOURCE: Final = '"_source":'


class _Untouched(JsonSerializer):
    """orjson would turn 20 digits into a float; a reader wants the digits."""

    def loads(self, data: bytes) -> Any:
        return data


class DocumentReader:
    """A client of its own, so that a slow look takes nothing from anyone else."""

    def __init__(self, settings: ElasticSettings) -> None:
        self._elastic = connect(settings)
        known = self._elastic.client.transport.serializers.serializers
        for kind in [kind for kind in known if kind.endswith("json") and "ndjson" not in kind]:
            known[kind] = _Untouched()

    def read(self, index: str, id: str, routing: str | None) -> tuple[int, bytes] | None:
        """Version and source, or None where there is no document. Raises ElasticsearchDown."""
        asked = f"/{quote(index, safe='')}/_doc/{quote(id, safe='')}"
        reply = self._elastic.call(
            "GET", asked + (f"?routing={quote(routing, safe='')}" if routing else ""), seconds=READ_SECONDS
        )
        if isinstance(reply, NoReply):
            raise ElasticsearchDown(reply.failure.error)
        if reply.status == 404:
            return None
        if reply.status != 200 or not isinstance(reply.body, bytes):
            raise ElasticsearchDown(f"it answers {reply.status}")
        return _version(reply.body), _source(reply.body)

    def close(self) -> None:
        self._elastic.close()


def _version(reply: bytes) -> int:
    return int(orjson.loads(reply).get("_version", 0))


def _source(reply: bytes) -> bytes:
    """The stored text. What stands before it holds no object, and in a string its quotes would be escaped."""
    text = reply.decode("utf-8", "replace")
    start = text.find(_SOURCE) + len(_SOURCE)
    if start < len(_SOURCE):
        return b"{}"
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()
