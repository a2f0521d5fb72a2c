"""Articles with comments in another table, their view, and how the index is compared with it. It runs nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg

from labs.checks import nobody
from labs.experiment import CheckResult
from labs.ledger import LedgerEntry, digest
from labs.producing import CANARY
from labs.record import Record
from labs.stage import Stage

KIND = "article"
TABLES: LiteralString = """
create table lab_articles (id bigint primary key, title text not null);
create table lab_comments (id bigint generated always as identity primary key, article_id bigint not null, text text);
create index on lab_comments (article_id);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           jsonb_build_object('title', a.title,
                              'content', (select coalesce(string_agg(c.text, ' ' order by c.id), '')
                                            from lab_comments c where c.article_id = a.id),
                              'revision', (select count(*) from lab_comments c where c.article_id = a.id)) as document
      from lab_articles a;
"""
TRUTH: LiteralString = "select entity_type, entity_id::text, document from search_documents"


def write_articles(stage: Stage, numbers: Iterable[int]) -> None:
    with stage.table.connect() as connection:
        for number in numbers:
            with connection.transaction():
                title = f"{CANARY} article {number}"
                connection.execute("insert into lab_articles (id, title) values (%s, %s)", [number, title])
                entry = refresh(connection, number)
            stage.ledger.add(entry)


def comment(connection: psycopg.Connection[Any], article: int, text: str) -> LedgerEntry:
    """A comment and the refresh of its article, in the current transaction."""
    connection.execute("insert into lab_comments (article_id, text) values (%s, %s)", [article, text])
    return refresh(connection, article)


def refresh(connection: psycopg.Connection[Any], article: int) -> LedgerEntry:
    """The entry for the ledger once it is committed."""
    row = connection.execute("select outbox_refresh(%s, %s)::text", [KIND, str(article)]).fetchone()
    assert row is not None
    return LedgerEntry(row[0], KIND, str(article), "refresh", 0, "", time.time())


def note_truth(stage: Stage, query: LiteralString = TRUTH) -> None:
    """truth.ndjson: the content that each document should have now, by PostgreSQL."""
    rows = stage.table.rows(query)
    lines = [{"_id": f"{kind}:{id}", "digest": digest(document)} for kind, id, document in rows]
    path = stage.folder / "truth.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def stale(record: Record) -> list[str]:
    """Documents that differ from PostgreSQL, including missing ones."""
    found = {name: row.get("digest") for name, row in record.documents.items() if row.get("found")}
    return [row["_id"] for row in record.rows("truth") if found.get(row["_id"]) != row["digest"]]


def as_postgres_says(record: Record) -> CheckResult:
    compared, wrong = len(record.rows("truth")), stale(record)
    observed = f"{compared} documents compared by their content, {len(wrong)} stale or missing"
    last = {entry.document: entry.id for entry in record.committed}
    violators = [last.get(name, name) for name in wrong] if compared else ["nothing to compare"]
    evidence = "documents.ndjson, truth.ndjson"
    return nobody("Documents match PostgreSQL", "none is stale or missing", observed, violators, evidence)
