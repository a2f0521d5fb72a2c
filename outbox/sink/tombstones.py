"""Asks Elasticsearch which version it remembers of a document that is gone. Writes nothing that could be noticed.

No read tells it. A delete with external version 0 does: whatever is there, document or tombstone, is at least 0, so it
is refused, and the refusal names the version (measured); where nothing is there, a tombstone of version 0 is left.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from outbox.errors import ElasticsearchDown, OutboxError
from outbox.policy.classify import classify_item
from outbox.policy.outcome import Stale
from outbox.policy.redact import summary
from outbox.sink.client import Elastic, NoReply, dumps

_FILTER: Final = "items.*.status,items.*.error"


class CannotAsk(OutboxError):
    """Elasticsearch refuses to say what it remembers of deleted documents. The key needs `delete` on the index."""


class ElasticTombstones:
    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic

    def versions(self, index: str, ids: Sequence[tuple[str, str | None]]) -> list[int | None]:
        """The remembered version of each (id, routing); None where nothing is remembered. The index must exist."""
        if not ids:
            return []
        lines = [dumps({"delete": _about(id, routing)}) for id, routing in ids]
        path = f"/{quote(index, safe='')}/_bulk?filter_path={_FILTER}"
        reply = self._elastic.call("PUT", path, b"\n".join([*lines, b""]))
        if isinstance(reply, NoReply):
            raise ElasticsearchDown(reply.failure.error)
        body = reply.body
        if reply.status >= 300 or not isinstance(body, dict) or len(body.get("items", ())) != len(ids):
            raise CannotAsk(f"{reply.status} {summary(body.get('error') if isinstance(body, dict) else body)}")
        return [_version(item["delete"]) for item in body["items"]]


def _about(id: str, routing: str | None) -> dict[str, object]:
    about: dict[str, object] = {"_id": id, "version": 0, "version_type": "external"}
    return about if routing is None else {**about, "routing": routing}


def _version(item: dict[str, object]) -> int | None:
    outcome = classify_item("delete", item)
    return outcome.current if isinstance(outcome, Stale) else None
