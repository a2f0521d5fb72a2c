"""Writes down what is left when the storm is over: rows, steps, documents, audit. Reads past every proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, LiteralString

from elasticsearch import Elasticsearch

from labs.collect import documents_of, write
from labs.ledger import digest

VIEW: LiteralString = "select entity_type, entity_id, document, routing from search_documents order by 1, 2"
# Of a run in which payloads keep all types.
NO_VIEW: LiteralString = "select '' as entity_type, '' as entity_id, null as document, '' as routing where false"
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
# In the form of the ledger: what daemons wrote, which nobody has committed beside them. Of a type that the view keeps a
# delete, of an attached row or of a repair, means what a refresh means. A replicated database may have noted one twice:
# where it was written, and where it was copied to.
OWED: LiteralString = (
    "select id, entity_type, entity_id, case when asks then 'refresh' else op end as op,"
    " case when asks then 0 else version end as version, payload, extract(epoch from at)::float8 as at"
    " from (select distinct on (id) * from recorded_refreshes order by id, at) as found, lateral ("
    "select op = 'delete' and (is_attached(entity_type) or exists (select from search_outbox_entity_types t"
    " where t.entity_type = found.entity_type and kept_by = 'view')) as asks) means order by at"
)
MOST_DOCUMENTS = 10_000  # that one search returns


def collect(
    folder: Path,
    rows: Callable[[LiteralString], Iterable[Row]],
    elastic: Elasticsearch,
    index: str,
    documents: Iterable[str],
    *,
    view: LiteralString | None = VIEW,
) -> None:
    """`documents`: the ids to read, there or not. Without a view there are no documents that the view keeps."""
    for name, query in TABLES.items():
        write(folder / f"{name}.ndjson", rows(query))
    write(folder / "view.ndjson", map(_in_view, rows(view) if view else ()))
    write(folder / "owed.ndjson", map(_owed, rows(OWED) if view else ()))
    wanted = list(dict.fromkeys(documents))
    write(folder / "documents.ndjson", documents_of(elastic.options(request_timeout=30), index, wanted))
    write(folder / "standing.ndjson", _standing(elastic.options(request_timeout=30), index))


def _owed(row: Row) -> Row:
    """What a repair writes has its payload with it."""
    payload = row.pop("payload")
    return {**row, "digest": digest(json.loads(payload)) if payload else ""}


def _in_view(row: Row) -> Row:
    """What a document of the view must be in the end, and where."""
    name = f"{row['entity_type']}:{row['entity_id']}"
    return {"_id": name, "routing": row["routing"] or "", "digest": digest(row["document"])}


def _standing(elastic: Elasticsearch, index: str) -> Iterable[Row]:
    """Every document of every shard, under whatever routing: an id may be there twice, which no read by id shows."""
    elastic.indices.refresh(index=index)
    found = elastic.search(index=index, size=MOST_DOCUMENTS, track_total_hits=True)["hits"]
    assert found["total"]["value"] == len(found["hits"]), "more documents than one search returns"
    for hit in found["hits"]:
        yield {"_id": hit["_id"], "routing": hit.get("_routing", ""), "digest": digest(hit["_source"])}
