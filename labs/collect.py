"""Records the state at the end of a lab: rows, steps, documents, audit. Reads without any proxy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from elasticsearch import Elasticsearch
from psycopg.rows import dict_row

from labs.ledger import digest

STEPS = Path(__file__).with_name("steps.sql")  # executed in the run's database before its first event
# Without payloads: a report is shown to people, and a digest is enough.
EVENTS: LiteralString = """
select id, seq, entity_type, entity_id, op, event_version, status, attempts, replay_count, abandoned_count, owner,
       lease_token, created_at, last_attempt_at, next_retry_at, processed_at, failed_at, error_reason, error_code,
       error, error_fingerprint, dead_reason, last_replayed_by, last_replayed_reason, last_replayed_at,
       payload::text as payload, extract(epoch from processed_at - created_at)::float8 as seconds
  from search_outbox_events order by seq
"""
TABLES: dict[str, LiteralString] = {
    "steps": "select * from recorded_steps order by n",
    "attempts": "select * from search_outbox_attempts order by at",
    "audit": "select id, at, action, actor, source, reason, batch_id, event_id from search_outbox_audit order by id",
    "replays": "select * from search_outbox_replays",
    "deliveries": "select * from search_outbox_webhook_deliveries",
    "leases": "select token, owner, lease_until from search_outbox_leases",
    "workers": "select worker_id, host, pid, version, state, started_at, heartbeat_at from search_outbox_workers",
}
# Without payloads; a record that succeeded leaves nothing else in the database.
OF_THE_LOG: dict[str, LiteralString] = {
    "log": "select id, op, event_version, created_at from search_outbox_log order by event_version"
}
PAGE = 500


def collect(
    folder: Path,
    database_url: str,
    elastic: Elasticsearch,
    index: str,
    documents: Iterable[str],
    tables: Mapping[str, LiteralString] = TABLES,
) -> None:
    """`documents` are the ids to check, whether they exist or not; unknown documents are found as well."""
    with psycopg.connect(database_url, row_factory=dict_row, connect_timeout=10) as connection:
        write(folder / "events.ndjson", map(_event, connection.execute(EVENTS)))
        for name, query in tables.items():
            write(folder / f"{name}.ndjson", connection.execute(query))
    write(folder / "documents.ndjson", documents_of(elastic, index, list(dict.fromkeys(documents))))


def _event(row: dict[str, Any]) -> dict[str, Any]:
    payload = row.pop("payload")
    return {**row, "digest": digest(json.loads(payload)) if payload else ""}


def documents_of(elastic: Elasticsearch, index: str, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """By id, which finds what is not searchable yet; then by search for documents that no event knows."""
    for start in range(0, len(wanted), PAGE):
        for doc in elastic.mget(index=index, ids=wanted[start : start + PAGE])["docs"]:
            yield _document(doc)
    for name in _phantoms(elastic, index, set(wanted)):
        yield {"_id": name, "found": True, "version": None, "digest": "", "phantom": True}


def _document(doc: dict[str, Any]) -> dict[str, Any]:
    found = bool(doc.get("found"))
    body = digest(doc["_source"]) if found else ""
    return {"_id": doc["_id"], "found": found, "version": doc.get("_version") if found else None, "digest": body}


def _phantoms(elastic: Elasticsearch, index: str, known: set[str]) -> Iterator[str]:
    if not elastic.indices.exists(index=index):
        return
    elastic.indices.refresh(index=index)
    after: list[Any] | None = None
    while True:
        reply = elastic.search(index=index, size=PAGE * 10, source=False, sort=["_doc"], search_after=after)
        hits = reply["hits"]["hits"]
        if not hits:
            return
        yield from (hit["_id"] for hit in hits if hit["_id"] not in known)
        after = hits[-1]["sort"]


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for row in rows:
            lines.write(json.dumps(row, default=str) + "\n")
