"""Reads one document from Elasticsearch as the exact text that it stores, for a comparison. It writes nothing."""

import json
from typing import Final
from urllib.parse import quote

import orjson

from outbox.errors import ElasticsearchDown
from outbox.sink.client import Elastic, NoReply

# A console page waits for this; projection does not.
READ_SECONDS: Final = 2.0
_SOURCE: Final = '"_source":'


class DocumentReader:
    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def read(self, index: str, id: str, routing: str | None) -> tuple[int, bytes] | None:
        """Version and source, or None if there is no document. Raises ElasticsearchDown."""
        path = f"/{quote(index, safe='')}/_doc/{quote(id, safe='')}"
        reply = self._elastic.call(
            "GET", path + (f"?routing={quote(routing, safe='')}" if routing else ""), seconds=READ_SECONDS
        )
        if isinstance(reply, NoReply):
            raise ElasticsearchDown(reply.failure.error)
        if reply.status == 404:
            return None
        if reply.status != 200 or not reply.raw:
            raise ElasticsearchDown(f"its reply is {reply.status}")
        return _version(reply.raw), _source(reply.raw)


def _version(reply: bytes) -> int:
    return int(orjson.loads(reply).get("_version", 0))


def _source(reply: bytes) -> bytes:
    """The stored text. No object comes before it in the reply, and in a string the quotes would be escaped."""
    text = reply.decode("utf-8", "replace")
    start = text.find(_SOURCE) + len(_SOURCE)
    if start < len(_SOURCE):
        return b"{}"
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()
