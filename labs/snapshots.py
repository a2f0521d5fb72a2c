"""The guide's three queries A, B and C, verbatim, and how they are run. It evaluates nothing."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

A: LiteralString = """\
SELECT status, count(*)
FROM search_outbox_events
WHERE processed_at IS NULL
GROUP BY status
ORDER BY status;"""

B: LiteralString = """\
SELECT count(*) AS stuck_processing
FROM search_outbox_events
WHERE processed_at IS NULL
  AND status='processing'
  AND (
    (lease_until IS NOT NULL AND lease_until < now())
    OR (
      processing_started_at IS NOT NULL
      AND now() - processing_started_at > interval '10 minutes'
    )
  );"""

C: LiteralString = """\
SELECT id, created_at, attempts, next_retry_at, error_reason
FROM search_outbox_events
WHERE processed_at IS NULL AND status='pending'
ORDER BY created_at ASC
LIMIT 5;"""

QUERIES: dict[str, LiteralString] = {"A": A, "B": B, "C": C}


def take(connection: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    """Columns and rows of each, as text for JSON."""
    taken: dict[str, dict[str, Any]] = {}
    for name, query in QUERIES.items():
        cursor = connection.execute(query)
        columns = [column.name for column in cursor.description or ()]
        taken[name] = {"columns": columns, "rows": [[_plain(value) for value in row] for row in cursor.fetchall()]}
    return taken


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)
