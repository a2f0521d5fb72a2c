"""Rows for the console's benchmark: done, failed in forty groups, open, and the counts of two days."""

import hashlib

import psycopg

from bench.load import document_sql
from bench.result import progress

TYPES = ("article", "author", "block", "comment")
FINGERPRINTS = tuple(hashlib.sha256(str(n).encode()).hexdigest()[:16] for n in range(40))
STEP = 500_000
_KIND = "(array['article', 'author', 'block', 'comment'])[g % 4 + 1]"
# Spread over two days, so that every chart has data.
_WHEN = "now() - (g % 172800) * interval '1 second'"
DONE = f"""
insert into search_outbox_events (entity_type, entity_id, op, payload, status, attempts, last_attempt_at,
       processed_at, created_at)
select {_KIND}, g::text, 'upsert', {document_sql(200)}, 'done', 1, {_WHEN}, {_WHEN}, {_WHEN} - interval '1 second'
  from generate_series($1::int, $2::int) g
"""
FAILED = f"""
insert into search_outbox_events (entity_type, entity_id, op, payload, status, attempts, last_attempt_at, failed_at,
       created_at, error_reason, error_code, error, error_fingerprint, dead_reason, error_detail)
select {_KIND}, 'f' || g, 'upsert', {document_sql(200)}, 'failed', 3, {_WHEN}, {_WHEN}, {_WHEN} - interval '1 minute',
       (array['es_rejected_document', 'es_429', 'es_5xx'])[g % 3 + 1], 'OUTBOX_MAPPING_MISMATCH',
       'failed to parse field [n] of type [long] in document ' || g, ($3::text[])[g % 40 + 1], 'non_retryable',
       '{{"type": "document_parsing_exception"}}'
  from generate_series($1::int, $2::int) g
"""
OPEN = f"""
insert into search_outbox_events (entity_type, entity_id, op, payload)
select {_KIND}, 'p' || g, 'upsert', {document_sql(200)} from generate_series($1::int, $2::int) g
"""
ATTEMPTS = """
insert into search_outbox_attempts (event_id, attempt, worker, reason, code, error)
select e.id, n, 'bench', e.error_reason, e.error_code, e.error
  from search_outbox_events e, generate_series(1, 3) n where e.failed_at is not null
"""
COUNTS = """
insert into search_outbox_rollup (bucket, span, entity_type, outcome, reason, n)
select date_trunc('minute', now()) - m * interval '1 minute', 'minute', t, o,
       case o when 'failed' then 'es_429' else '' end, 100
  from generate_series(1, 2880) m, unnest($1::text[]) t, unnest(array['done', 'failed', 'retried']) o
"""


def fill_rows(url: str, done: int, failed: int, pending: int) -> None:
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        for start in range(0, done, STEP):
            progress(f"{start:,} of {done:,} done rows")
            connection.execute(DONE.encode(), [start + 1, min(start + STEP, done)])
        connection.execute(FAILED.encode(), [1, failed, list(FINGERPRINTS)])
        connection.execute(OPEN.encode(), [1, pending])
        connection.execute(ATTEMPTS.encode())
        connection.execute(COUNTS.encode(), [list(TYPES)])
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
