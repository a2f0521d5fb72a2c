"""Reads many documents for a comparison: by id with their exact sources, and all ids of an index at a point in time.
Writes no document. Reads page by page, so memory stays constant."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from outbox.errors import ElasticsearchDown, OutboxError
from outbox.policy.drift import NO_SOURCE, HeldDocument
from outbox.policy.lossless import Unreadable, read_exact
from outbox.policy.product import Dialect
from outbox.policy.redact import summary
from outbox.sink.client import Elastic, NoReply
from outbox.sink.exchange import LARGEST_REPLY_BYTES

KEEP_ALIVE: Final = "2m"
SCAN_PAGE: Final = 1_000
SAMPLE_PAGE: Final = 5_000


class IndexNotThere(OutboxError):
    """The index or alias does not exist. Correct ELASTIC_INDEX or ELASTIC_INDEX_MAP, or create it with
    `outbox index create`."""

    exit_code = 78


class CannotRead(OutboxError):
    """Elasticsearch does not allow this key to read the index. The key needs `read` and `view_index_metadata` on it."""


class NoPointInTime(OutboxError):
    """The server cannot read an index as of one point in time. OpenSearch can from 2.4 on: update it. Nothing was
    changed."""

    exit_code = 78


class TooMuch(Exception):
    """A reply is larger than the limit."""


class ElasticScan:
    """One index or alias per call. `routed` indexes are read by search, because the shard of a document is unknown."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def count(self, index: str) -> int:
        """The number of searchable documents. Raises IndexNotThere."""
        return int(self._ask("GET", f"/{_path(index)}/_count").get("count", 0))

    def refresh(self, index: str) -> None:
        """So that a scan sees earlier writes. Without the privilege it sees them a few seconds later."""
        self._elastic.call("POST", f"/{_path(index)}/_refresh")

    def is_routed(self, index: str) -> bool:
        """Whether any document has a routing: then the id alone does not determine its shard."""
        query = {"size": 0, "terminate_after": 1, "query": {"exists": {"field": "_routing"}}}
        found = self._ask("POST", f"/{_path(index)}/_search?filter_path=hits.total", query)
        return bool(found.get("hits", {}).get("total", {}).get("value", 0))

    # By id

    def held(self, index: str, ids: Sequence[str], *, routed: bool = False) -> dict[str, list[HeldDocument]]:
        """The documents with these ids; more than one per id only if routings differ. Halves the ids if the reply is
        too large; a single document that is too large comes without its source."""
        if not ids:
            return {}
        ask = self._by_search if routed else self._by_id
        try:
            return ask(index, ids)
        except TooMuch:
            if len(ids) == 1:
                return ask(index, ids, source=False)
        half = len(ids) // 2
        return {**self.held(index, ids[:half], routed=routed), **self.held(index, ids[half:], routed=routed)}

    def _by_id(self, index: str, ids: Sequence[str], *, source: bool = True) -> dict[str, list[HeldDocument]]:
        """Realtime: also finds what is not searchable yet."""
        option = "" if source else "?_source=false"
        reply = self._exact("POST", f"/{_path(index)}/_mget{option}", {"ids": list(ids)})
        found: dict[str, list[HeldDocument]] = {}
        for doc in reply["docs"]:
            if doc.get("error"):
                raise CannotRead(summary(doc["error"]))
            if doc.get("found"):
                found[doc["_id"]] = [_held(doc)]
        return found

    def _by_search(self, index: str, ids: Sequence[str], *, source: bool = True) -> dict[str, list[HeldDocument]]:
        asked = {
            "size": 10_000,
            "version": True,
            "_source": source,
            "query": {"ids": {"values": list(ids)}},
            "track_total_hits": False,
        }
        found: dict[str, list[HeldDocument]] = {}
        for hit in self._exact("POST", f"/{_path(index)}/_search", asked)["hits"]["hits"]:
            found.setdefault(hit["_id"], []).append(_held(hit))
        return found

    # All documents

    def scan(self, index: str, page: int = SCAN_PAGE) -> Iterator[list[HeldDocument]]:
        """Every id with its version and routing, no sources, as of one point in time (per shard, if need be)."""
        dialect = self._elastic.required()
        if dialect.sorts_shards:
            yield from self._pages(dialect, index, page)
            return
        for concrete, shards in self._shards(index).items():
            for shard in range(shards):
                yield from self._pages(dialect, concrete, page, shard)

    def _shards(self, index: str) -> dict[str, int]:
        found = self._ask("GET", f"/{_path(index)}/_settings/index.number_of_shards?flat_settings=true")
        return {name: int(about["settings"]["index.number_of_shards"]) for name, about in found.items()}

    def _pages(self, dialect: Dialect, index: str, page: int, shard: int | None = None) -> Iterator[list[HeldDocument]]:
        asked: dict[str, Any] = {
            "size": page,
            "sort": [{"_shard_doc" if shard is None else "_doc": "asc"}],
            "_source": False,
            "version": True,
            "track_total_hits": False,
        }
        with self._point_in_time(dialect, index, shard) as opened:
            asked["pit"] = {"id": opened, "keep_alive": KEEP_ALIVE}
            while True:
                reply = self._ask("POST", "/_search", asked)
                hits = reply["hits"]["hits"]
                if not hits:
                    return
                yield [_held(hit) for hit in hits]
                asked["pit"]["id"] = reply.get("pit_id", asked["pit"]["id"])
                asked["search_after"] = hits[-1]["sort"]

    @contextmanager
    def _point_in_time(self, dialect: Dialect, index: str, shard: int | None) -> Iterator[str]:
        only = "" if shard is None else f"&preference=_shards:{shard}"
        pit = self._ask("POST", f"/{_path(index)}/{dialect.open_pit}keep_alive={KEEP_ALIVE}{only}")[dialect.pit_id]
        try:
            yield pit
        finally:
            self._elastic.call("DELETE", dialect.close_pit, json.dumps(dialect.pit_to_close(pit)).encode())

    def sample(self, index: str, number: int, seed: int) -> list[HeldDocument]:
        """A random sample of documents without repeats, up to ten thousand."""
        asked = {
            "size": min(number, 10_000),
            "_source": False,
            "version": True,
            "track_total_hits": False,
            "query": {"function_score": {"random_score": {"seed": seed, "field": "_seq_no"}}},
        }
        found = self._ask("POST", f"/{_path(index)}/_search", asked)["hits"]["hits"]
        return [_held(hit) for hit in found]

    # Requests

    def _ask(self, method: str, path: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        body = None if asked is None else json.dumps(asked).encode()
        reply = self._elastic.call(method, path, body)
        if isinstance(reply, NoReply):
            raise reply.error()
        answer = reply.body
        if reply.status == 200 and isinstance(answer, dict):
            return answer
        raise _refusal(reply.status, answer)

    def _exact(self, method: str, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Sources exactly as Elasticsearch stores them: it copies the bytes that were sent into its reply (tested)."""
        reply = self._elastic.call(method, path, json.dumps(asked).encode())
        if isinstance(reply, NoReply):
            if str(LARGEST_REPLY_BYTES) in reply.failure.error:
                raise TooMuch
            raise reply.error()
        try:
            parsed = read_exact(reply.raw.decode())
        except (Unreadable, UnicodeDecodeError):
            parsed = None
        if reply.status == 200 and isinstance(parsed, dict):
            return parsed
        raise _refusal(reply.status, parsed)


def _refusal(status: int, body: Any) -> OutboxError:
    error = body.get("error") if isinstance(body, dict) else None
    reason = f"{status} {summary(error or 'no reason given')}"
    if status == 404:
        return IndexNotThere(reason)
    if isinstance(error, str) and error.startswith("no handler found"):  # of a version that could not be asked for
        return NoPointInTime(reason)
    return ElasticsearchDown(reason) if status in (429, 502, 503, 504) else CannotRead(reason)


def _held(found: Mapping[str, Any]) -> HeldDocument:
    return HeldDocument(found["_id"], int(found["_version"]), found.get("_routing"), found.get("_source", NO_SOURCE))


def _path(index: str) -> str:
    return quote(index, safe="")
