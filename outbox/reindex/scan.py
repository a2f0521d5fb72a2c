"""Reads many documents for a comparison: by id with their exact sources, and all ids of an index at a point in time.
Writes no document. Reads page by page, so memory stays constant."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson

from outbox.errors import ElasticsearchDown, OutboxError
from outbox.policy.drift import NO_SOURCE, HeldDocument
from outbox.policy.lossless import Unreadable, read_exact
from outbox.policy.product import Dialect
from outbox.policy.redact import summary
from outbox.sink.client import Elastic, NoReply, quoted
from outbox.sink.exchange import LARGEST_REPLY_BYTES

KEEP_ALIVE: Final = "5m"  # slices of one point in time are read by turns, each page renews it
SCAN_PAGE: Final = 1_000
MOST_SLICES: Final = 256  # of one point in time; the server's own limit is 1,024 (`index.max_slices_per_pit`)
_IDS: Final = {"_source": False, "version": True, "track_total_hits": False}
_LOST: Final = "search_context_missing_exception"


class IndexNotThere(OutboxError):
    """The index or alias does not exist. Correct ELASTIC_INDEX or ELASTIC_INDEX_MAP, or create it with
    `outbox index create`."""

    exit_code = 78


class CannotRead(OutboxError):
    """The search server does not allow this login to read the index. Grant what docs/security.md lists for people."""


class PointInTimeLost(OutboxError):
    """The server has lost the point in time that was read: a node was restarted, or nothing was asked for five minutes.
    Run the command again: it begins anew."""

    exit_code = 75


class NoPointInTime(OutboxError):
    """The server cannot read an index as of one point in time. OpenSearch can from 2.4 on: update it. Nothing was
    changed."""

    exit_code = 78


class TooMuch(Exception):
    """A reply is larger than the limit."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One shard of one index, and what the alias by which it is read leaves over of it."""

    index: str
    shard: int
    filter: Mapping[str, Any] | None = None


class ElasticScan:
    """One index or alias per call. `routed` indexes are read by search, because the shard of a document is unknown."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def count(self, index: str) -> int:
        return int(self._ask("GET", f"/{quoted(index)}/_count").get("count", 0))

    def refresh(self, index: str) -> None:
        """So that a scan sees earlier writes. Without the privilege it sees them a few seconds later."""
        self._elastic.call("POST", f"/{quoted(index)}/_refresh")

    def is_routed(self, index: str) -> bool:
        """Whether any document has a routing: then the id alone does not determine its shard."""
        query = {"size": 0, "terminate_after": 1, "query": {"exists": {"field": "_routing"}}}
        found = self._ask("POST", f"/{quoted(index)}/_search?filter_path=hits.total,_shards", query)
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

    def known(self, index: str, ids: Sequence[str], *, routed: bool = False) -> set[str]:
        """Those of these ids that have a document; no source is read."""
        ask = self._by_search if routed else self._by_id
        return set(ask(index, ids, source=False))

    def _by_id(self, index: str, ids: Sequence[str], *, source: bool = True) -> dict[str, list[HeldDocument]]:
        """Realtime: also finds what is not searchable yet."""
        option = "" if source else "?_source=false"
        reply = self._exact("POST", f"/{quoted(index)}/_mget{option}", {"ids": list(ids)})
        found: dict[str, list[HeldDocument]] = {}
        for doc in reply["docs"]:
            if doc.get("error"):
                raise CannotRead(summary(doc["error"]))
            if doc.get("found"):
                found[doc["_id"]] = [_held(doc)]
        return found

    def _by_search(self, index: str, ids: Sequence[str], *, source: bool = True) -> dict[str, list[HeldDocument]]:
        asked = {**_IDS, "size": 10_000, "_source": source, "query": {"ids": {"values": list(ids)}}}
        found: dict[str, list[HeldDocument]] = {}
        for hit in self._exact("POST", f"/{quoted(index)}/_search", asked)["hits"]["hits"]:
            found.setdefault(hit["_id"], []).append(_held(hit))
        return found

    # All documents

    def scan(self, index: str, page: int = SCAN_PAGE) -> Iterator[list[HeldDocument]]:
        """Every id with its version and routing, no sources, as of one point in time (per shard, if need be)."""
        slices = self.open_slices(index, 1)
        try:
            for place in slices:
                yield from self.scan_slice(place, page)
        finally:
            self.close_slices(slices)

    # In slices, each read by a process of its own

    def open_slices(self, index: str, wanted: int) -> list[dict[str, Any]]:
        """Where to find each: of one point in time, or the shards where the server cannot sort by them."""
        dialect = self._elastic.required()
        if dialect.sorts_shards:
            pit, most = self._open(dialect, index), max(1, min(wanted, MOST_SLICES))
            return [{"pit": pit, "slice": number, "of": most} for number in range(most)]
        return [asdict(part) for part in self._parts(index)]

    def close_slices(self, slices: Sequence[Mapping[str, Any]]) -> None:
        dialect = self._elastic.required()
        for pit in {each["pit"] for each in slices if "pit" in each}:
            self._close(dialect, pit)

    def scan_slice(self, place: Mapping[str, Any], page: int = SCAN_PAGE) -> Iterator[list[HeldDocument]]:
        if "pit" not in place:
            yield from self._part(_Part(**place), page)
            return
        asked = _all_ids(page, "_shard_doc")
        if place["of"] > 1:
            asked["slice"] = {"id": place["slice"], "max": place["of"]}
        yield from self._pages_of(place["pit"], asked)

    def _parts(self, index: str) -> Iterator[_Part]:
        """Every shard by itself. Opened by its own name an index does not know what its alias leaves out."""
        about = self._ask("GET", f"/{quoted(index)}/_alias")
        settings = self._ask("GET", f"/{quoted(index)}/_settings/index.number_of_shards?flat_settings=true")
        for concrete, found in settings.items():
            alias = about.get(concrete, {}).get("aliases", {}).get(index, {})
            shards: Iterable[int] = range(int(found["settings"]["index.number_of_shards"]))
            if routing := alias.get("search_routing"):
                path = f"/{quoted(concrete)}/_search_shards?routing={quote(routing, safe=',')}&filter_path=shards.shard"
                shards = sorted({copies[0]["shard"] for copies in self._ask("GET", path).get("shards", [])})
            yield from (_Part(concrete, shard, alias.get("filter")) for shard in shards)

    def _part(self, part: _Part, page: int) -> Iterator[list[HeldDocument]]:
        asked = _all_ids(page, "_doc")
        if part.filter is not None:
            asked["query"] = part.filter
        dialect = self._elastic.required()
        pit = self._open(dialect, part.index, f"&preference=_shards:{part.shard}")
        try:
            yield from self._pages_of(pit, asked)
        finally:
            self._close(dialect, pit)

    def _pages_of(self, pit: str, asked: dict[str, Any]) -> Iterator[list[HeldDocument]]:
        asked["pit"] = {"id": pit, "keep_alive": KEEP_ALIVE}
        while True:
            reply = self._ask("POST", "/_search", asked)
            hits = reply["hits"]["hits"]
            if not hits:
                return
            yield [_held(hit) for hit in hits]
            asked["pit"]["id"] = reply.get("pit_id", asked["pit"]["id"])
            asked["search_after"] = hits[-1]["sort"]

    def _open(self, dialect: Dialect, index: str, only: str = "") -> str:
        pit = self._ask("POST", f"/{quoted(index)}/{dialect.open_pit}keep_alive={KEEP_ALIVE}{only}")[dialect.pit_id]
        return str(pit)

    def _close(self, dialect: Dialect, pit: str) -> None:
        self._elastic.call("DELETE", dialect.close_pit, orjson.dumps(dialect.pit_to_close(pit)))

    def sample(self, index: str, number: int, seed: int) -> list[HeldDocument]:
        """A random sample of documents without repeats, up to ten thousand."""
        query = {"function_score": {"random_score": {"seed": seed, "field": "_seq_no"}}}
        asked = {**_IDS, "size": min(number, 10_000), "query": query}
        found = self._ask("POST", f"/{quoted(index)}/_search", asked)["hits"]["hits"]
        return [_held(hit) for hit in found]

    # Requests

    def _ask(self, method: str, path: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        reply = self._elastic.ask(method, path, asked)
        answer = reply.body
        if reply.status == 200 and isinstance(answer, dict):
            return _complete(answer)
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
            return _complete(parsed)
        raise _refusal(reply.status, parsed)


def _all_ids(page: int, order: str) -> dict[str, Any]:
    return {**_IDS, "size": page, "sort": [{order: "asc"}]}


def _complete(answer: dict[str, Any]) -> dict[str, Any]:
    """A reply in which a shard is missing lacks its documents, and is a 200 all the same."""
    shards = answer.get("_shards")
    if not isinstance(shards, Mapping) or not shards.get("failed"):
        return answer
    reasons = [failure.get("reason") for failure in shards.get("failures", []) if isinstance(failure, Mapping)]
    if any(isinstance(reason, Mapping) and reason.get("type") == _LOST for reason in reasons):
        raise PointInTimeLost(summary(reasons[0]))
    said = summary(reasons[0] if reasons else "no reason given")
    raise ElasticsearchDown(f"{shards['failed']} of {shards.get('total')} shards did not answer: {said}")


def _is_lost(error: Any) -> bool:
    causes = error.get("root_cause", []) if isinstance(error, Mapping) else []
    return any(isinstance(cause, Mapping) and cause.get("type") == _LOST for cause in [error, *causes])


def _refusal(status: int, body: Any) -> OutboxError:
    error = body.get("error") if isinstance(body, dict) else None
    reason = f"{status} {summary(error or 'no reason given')}"
    if _is_lost(error):
        return PointInTimeLost(reason)
    if status == 404:
        return IndexNotThere(reason)
    if isinstance(error, str) and error.startswith("no handler found"):  # of a version that could not be asked for
        return NoPointInTime(reason)
    return ElasticsearchDown(reason) if status in (429, 502, 503, 504) else CannotRead(reason)


def _held(found: Mapping[str, Any]) -> HeldDocument:
    return HeldDocument(found["_id"], int(found["_version"]), found.get("_routing"), found.get("_source", NO_SOURCE))
