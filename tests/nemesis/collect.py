"""Writes down what is left when the storm is over: rows, steps, documents, audit. Reads past every proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, LiteralString

from elasticsearch import Elasticsearch

from labs.ledger import Entry, digest
from tests.nemesis.joined import KIND

PAGE = 500
VIEW: LiteralString = "select entity_id, document from search_documents where entity_type = 'joined' order by 1"
Row = dict[str, Any]
TABLES: dict[str, LiteralString] = {
    "events": "select id, seq, entity_type, entity_id, op, event_version, status, attempts, abandoned_count,"
    " replay_count, owner, error_reason from search_outbox_events order by seq",
    "steps": "select n, extract(epoch from at)::float8 as at, event_id, who, app, old_status, new_status, old_token,"
    " new_token, lease_left, old_attempts, attempts, abandoned, replays, reason, dead_reason"
    " from nemesis_steps order by n",
    "leases": "select token, owner, lease_until from search_outbox_leases",
    "audit": "select id, at, action, actor, batch_id, event_id from search_outbox_audit order by id",
    "replays": "select * from search_outbox_replays",
}


def collect(
    folder: Path,
    rows: Callable[[LiteralString], Iterable[Row]],
    elastic: Elasticsearch,
    index: str,
    ledger: list[Entry],
    *,
    view: LiteralString | None = VIEW,
) -> None:
    """Without a view there are no joined documents."""
    for name, query in TABLES.items():
        _write(folder / f"{name}.ndjson", rows(query))
    _write(folder / "view.ndjson", map(_in_view, rows(view) if view else ()))
    wanted = list(dict.fromkeys(entry.document for entry in ledger))
    _write(folder / "documents.ndjson", _documents(elastic.options(request_timeout=30), index, wanted))


def _in_view(row: Row) -> Row:
    """What a joined document must be in the end."""
    return {"_id": f"{KIND}:{row['entity_id']}", "digest": digest(row["document"])}


def _documents(elastic: Elasticsearch, index: str, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """By id, which sees what no refresh has shown yet; then by search for those that nobody knows."""
    for start in range(0, len(wanted), PAGE):
        for doc in elastic.mget(index=index, ids=wanted[start : start + PAGE])["docs"]:
            yield _document(doc)
    elastic.indices.refresh(index=index)
    known = set(wanted)
    after: Any = None
    while True:
        reply = elastic.search(index=index, size=5_000, source=False, sort=["_doc"], search_after=after)
        hits = reply["hits"]["hits"]
        if not hits:
            return
        yield from ({"_id": hit["_id"], "phantom": True} for hit in hits if hit["_id"] not in known)
        after = hits[-1]["sort"]


def _document(doc: dict[str, Any]) -> dict[str, Any]:
    found = bool(doc.get("found"))
    body = digest(doc["_source"]) if found else ""
    return {"_id": doc["_id"], "found": found, "version": doc.get("_version") if found else None, "digest": body}


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for row in rows:
            lines.write(json.dumps(row, default=str) + "\n")
