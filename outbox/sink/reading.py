"""Reads one document from Elasticsearch as the very text that it stores, for people who compare. It writes nothing."""

import json
from typing import Final
from urllib.parse import quote

import orjson

from outbox.errors import ElasticsearchDown
from outbox.sink.client import Elastic, NoReply

# A page waits for this; projection does not.
READ_SECONDS: Final = 2.0
_SOURCE: Final = '"_source":'


class DocumentReader:
    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

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
        if reply.status != 200 or not reply.raw:
            raise ElasticsearchDown(f"it answers {reply.status}")
        return _version(reply.raw), _source(reply.raw)


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
