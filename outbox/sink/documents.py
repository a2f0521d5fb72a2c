"""Reads what Elasticsearch holds: versions, also of deleted documents, and one document as its exact text."""

import json
from collections.abc import Sequence
from typing import Any, Final

import orjson

from outbox.errors import ElasticsearchDown, OutboxError
from outbox.policy.classify import classify_item
from outbox.policy.document import Address
from outbox.policy.outcome import Stale
from outbox.policy.redact import summary
from outbox.sink.client import Elastic, NoReply, quoted

MOST_PER_REQUEST: Final = 1_000
_MGET: Final = "/_mget?_source=false&filter_path=docs._version,docs.found,docs.error.type"
_BULK_FILTER: Final = "items.*.status,items.*.error"


def versions(elastic: Elastic, addresses: Sequence[Address], *, seconds: float = 10.0) -> list[int | None] | None:
    """The version of each document in order, None if there is none. Just None if the server does not answer."""
    found: list[int | None] = []
    for start in range(0, len(addresses), MOST_PER_REQUEST):
        part = addresses[start : start + MOST_PER_REQUEST]
        asked = {"docs": [_named(each.id, each.routing, _index=each.index) for each in part]}
        docs = (elastic.call("POST", _MGET, orjson.dumps(asked), seconds=seconds).content or {}).get("docs")
        if not isinstance(docs, list) or len(docs) != len(part):
            return None
        found += [_version_held(doc) for doc in docs]
    return found


def _named(id: str, routing: str | None, **about: object) -> dict[str, object]:
    return {"_id": id, **about} if routing is None else {"_id": id, "routing": routing, **about}


def _version_held(doc: Any) -> int | None:
    version = doc.get("_version") if isinstance(doc, dict) and doc.get("found") else None
    return version if isinstance(version, int) else None


class CannotAsk(OutboxError):
    """The search server does not report the versions of deleted documents. Grant the right to delete them
    (docs/security.md)."""


def tombstones(elastic: Elastic, index: str, ids: Sequence[tuple[str, str | None]]) -> list[int | None]:
    """The remembered version of each (id, routing), None if there is none. The index must exist.

    No read request returns the versions of deleted documents. A delete with external version 0 does: a document or
    tombstone has at least version 0, so Elasticsearch refuses the delete and names the version. If there is nothing, a
    tombstone of version 0 is left.
    """
    if not ids:
        return []
    no_version = {"version": 0, "version_type": "external"}
    lines = [orjson.dumps({"delete": _named(id, routing, **no_version)}) for id, routing in ids]
    reply = elastic.ask("PUT", f"/{quoted(index)}/_bulk?filter_path={_BULK_FILTER}", b"\n".join([*lines, b""]))
    body = reply.body
    if reply.status >= 300 or not isinstance(body, dict) or len(body.get("items", ())) != len(ids):
        raise CannotAsk(f"{reply.status} {summary(body.get('error') if isinstance(body, dict) else body)}")
    outcomes = (classify_item("delete", item["delete"]) for item in body["items"])
    return [outcome.current if isinstance(outcome, Stale) else None for outcome in outcomes]


# A console page waits for this; projection does not.
READ_SECONDS: Final = 2.0
_SOURCE: Final = '"_source":'


def read_document(elastic: Elastic, index: str, id: str, routing: str | None) -> tuple[int, bytes] | None:
    """Version and source, or None if there is no document. Raises ElasticsearchDown."""
    path = f"/{quoted(index)}/_doc/{quoted(id)}" + (f"?routing={quoted(routing)}" if routing else "")
    reply = elastic.call("GET", path, seconds=READ_SECONDS)
    if isinstance(reply, NoReply):
        raise ElasticsearchDown(reply.failure.error)
    if reply.status == 404:
        return None
    if reply.status != 200 or not reply.raw:
        raise ElasticsearchDown(f"its reply is {reply.status}")
    return int(orjson.loads(reply.raw).get("_version", 0)), _source(reply.raw)


def _source(reply: bytes) -> bytes:
    """The stored text. No object comes before it in the reply, and in a string the quotes would be escaped."""
    text = reply.decode("utf-8", "replace")
    start = text.find(_SOURCE) + len(_SOURCE)
    if start < len(_SOURCE):
        return b"{}"
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end].encode()
