"""Writes down what is left when the storm is over: rows, steps, documents, audit. Reads past every proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, LiteralString

from elasticsearch import Elasticsearch

from labs.collect import documents_of, write
from labs.ledger import LedgerEntry, digest
from tests.nemesis.joined import KIND

VIEW: LiteralString = "select entity_id, document from search_documents where entity_type = 'joined' order by 1"
Row = dict[str, Any]
TABLES: dict[str, LiteralString] = {
    "events": "select id, seq, entity_type, entity_id, op, event_version, status, attempts, abandoned_count,"
    " replay_count, owner, error_reason from search_outbox_events order by seq",
    "steps": "select n, extract(epoch from at)::float8 as at, event_id, who, app, old_status, new_status, old_token,"
    " new_token, lease_left, old_attempts, attempts, abandoned, replays, reason, dead_reason"
    " from recorded_steps order by n",
    "leases": "select token, owner, lease_until from search_outbox_leases",
    "audit": "select id, at, action, actor, batch_id, event_id from search_outbox_audit order by id",
    "replays": "select * from search_outbox_replays",
}


def collect(
    folder: Path,
    rows: Callable[[LiteralString], Iterable[Row]],
    elastic: Elasticsearch,
    index: str,
    ledger: list[LedgerEntry],
    *,
    view: LiteralString | None = VIEW,
) -> None:
    """Without a view there are no joined documents."""
    for name, query in TABLES.items():
        write(folder / f"{name}.ndjson", rows(query))
    write(folder / "view.ndjson", map(_in_view, rows(view) if view else ()))
    wanted = list(dict.fromkeys(entry.document for entry in ledger))
    write(folder / "documents.ndjson", documents_of(elastic.options(request_timeout=30), index, wanted))


def _in_view(row: Row) -> Row:
    """What a joined document must be in the end."""
    return {"_id": f"{KIND}:{row['entity_id']}", "digest": digest(row["document"])}
