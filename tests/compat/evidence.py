"""Owns the judgement of an upgrade: the producers' ledger against table, documents and the log of transitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from elasticsearch import Elasticsearch

from labs.ledger import LedgerEntry, digest, newest

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{'ok    ' if self.ok else 'FAILED'} {self.name}{f': {self.detail}' if self.detail else ''}"


def value(connection: Connection, query: str, *values: Any) -> Any:
    row = connection.execute(query.encode(), values).fetchone()
    return row[0] if row else None


def judged(
    connection: Connection, elastic: Elasticsearch, index: str, entries: list[LedgerEntry], others: int = 0
) -> Iterator[Check]:
    """`others`: so many documents are not of the ledger."""
    committed = {entry.id for entry in entries if entry.committed}
    done = {str(id) for (id,) in connection.execute("select id from search_outbox_events where status = 'done'")}
    lost = committed - done
    yield Check("nothing lost", not lost, f"{len(committed):,} committed, {len(committed & done):,} done")
    wrong = list(_wrong(elastic, index, entries, others))
    detail = f"{len(newest(entries)):,} documents compared{f', wrong: {wrong[:3]}' if wrong else ''}"
    yield Check("no document different, deleted or back", not wrong, detail)
    leased = value(connection, "select count(*) from search_outbox_leases")
    held = value(connection, "select count(*) from search_outbox_events where status = 'processing'")
    yield Check("nothing left leased", (leased, held) == (0, 0), f"{leased} leases, {held} rows")
    # A holder's row may only be taken by the reclaimer, who gives it back first.
    twice = value(
        connection,
        "select count(*) from recorded_steps where old_status = 'processing' and new_status = 'processing'"
        " and old_token is distinct from new_token",
    )
    yield Check("no row held twice", twice == 0, f"{twice} times")


def _wrong(elastic: Elasticsearch, index: str, entries: list[LedgerEntry], others: int) -> Iterator[tuple[str, str]]:
    last = newest(entries)
    elastic.indices.refresh(index=index)
    ids = sorted(last)
    for start in range(0, len(ids), 1000):
        part = ids[start : start + 1000]
        for id, found in zip(part, elastic.mget(index=index, ids=part)["docs"], strict=True):
            entry = last[id]
            here = found.get("found", False)
            if entry.op == "delete":
                if here:
                    yield id, "is back"
            elif not here:
                yield id, "is missing"
            elif (found["_version"], digest(found["_source"])) != (entry.version, entry.digest):
                yield id, f"has version {found['_version']}, not {entry.version}, or another body"
    extra = elastic.count(index=index)["count"] - others - sum(entry.op != "delete" for entry in last.values())
    if extra:
        yield "all", f"{extra:+} documents that nobody wrote"


def longest_gap(connection: Connection, since: Any, until: Any) -> float:
    """Seconds without a settled event; what a migration costs those who go on working."""
    return float(
        value(
            connection,
            "select coalesce(extract(epoch from max(gap)), 0) from (select at - lag(at) over (order by at) as gap"
            " from recorded_steps where new_status = 'done' and at between %s and %s) as gaps",
            since,
            until,
        )
    )
