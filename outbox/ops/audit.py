"""The audit for people: pages, exports (CSV, JSON, NDJSON), pruning, the check of its chain. Writes only own acts."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson

from outbox.policy import inputs
from outbox.policy.audit import (
    LEAST_DAYS,
    Action,
    Actor,
    ChainFinding,
    Entry,
    PruneOrder,
    follow_chain,
)
from outbox.policy.inputs import AuditFilter, given

if TYPE_CHECKING:
    from outbox.store.audit import PostgresAudit

# What a spreadsheet takes for a formula, full-width signs included; a quote in front makes it text.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """`detail` is the JSON text as it was written; hashes are hex."""

    id: int
    at: datetime
    action: str
    actor: str
    role: str | None
    source: str
    reason: str | None
    batch_id: UUID | None
    event_id: UUID | None
    entity_type: str | None
    entity_id: str | None
    trace_id: str | None
    detail: bytes | None
    login: str | None  # of the database session; None in rows of older releases
    prev_hash: str
    hash: str


COLUMNS: Final = tuple(field.name for field in fields(AuditRow))


def audit_row(row: Row) -> AuditRow:
    hashes = {name: (row[name] or b"").hex() for name in ("prev_hash", "hash")}
    return AuditRow(**{name: row[name] for name in COLUMNS} | hashes)


def neutral(cell: str) -> str:
    """No spreadsheet may take what someone wrote for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode() if isinstance(value, bytes) else str(value)


def csv_lines(rows: Iterator[AuditRow]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([neutral(_text(getattr(row, name))) for name in COLUMNS])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def ndjson(rows: Iterator[AuditRow]) -> Iterator[str]:
    for row in rows:
        yield _object(row) + "\n"


def json(rows: Iterator[AuditRow]) -> Iterator[str]:
    yield "["
    for number, row in enumerate(rows):
        yield (",\n" if number else "\n") + _object(row)
    yield "\n]\n"


def _object(row: AuditRow) -> str:
    """`detail` goes in as it stands, its line breaks as blanks: they can only be white space there."""
    told = {name: getattr(row, name) for name in COLUMNS}
    if row.detail is not None:
        told["detail"] = orjson.Fragment(row.detail.replace(b"\n", b" "))
    return orjson.dumps(told).decode()


FORMATS: Final = ("csv", "json", "ndjson")
WRITERS: Final[Mapping[str, Callable[[Iterator[AuditRow]], Iterator[str]]]] = {
    "csv": csv_lines,
    "json": json,
    "ndjson": ndjson,
}


MOST_FINDINGS: Final = 100

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """`total` stops at 10,001, which reads "10,000+"."""

    rows: Sequence[AuditRow]
    next_cursor: int | None
    total: int


@dataclass(frozen=True, slots=True)
class AuditPruned:
    """What a prune removed, or would remove where `dry_run`."""

    removed: int
    before: datetime
    oldest: datetime | None
    newest: datetime | None
    dry_run: bool


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    ok: bool
    head: int
    findings: Sequence[ChainFinding]


@dataclass(frozen=True, slots=True)
class AuditDesk:
    store: PostgresAudit
    rows_a_step: int = 5_000  # each step adds a row that says what went
    pause: Callable[[float], None] = time.sleep

    def page(self, asked: AuditFilter, cursor: int | None = None, limit: int = 50) -> AuditPage:
        """Newest first. The cursor is the id of the last row of the page before."""
        limit = inputs.whole("limit", limit, 1, 500)
        before = 2**63 - 1 if cursor is None else inputs.whole("cursor", cursor, 1, 2**63 - 1)
        found = [audit_row(row) for row in self.store.page(asked, before, limit + 1)]
        more = found[limit - 1].id if len(found) > limit else None
        return AuditPage(found[:limit], more, self.store.count(asked, inputs.MOST_COUNTED + 1))

    def export(self, asked: AuditFilter, form: str, actor: Actor) -> Iterator[str]:
        """The rows up to now as text, piece by piece; that they were exported is written down first."""
        if form not in FORMATS:
            raise inputs.BadRequest([("format", f"must be one of {', '.join(FORMATS)}")])
        head = self.store.head_id()
        detail = {"format": form, "filter": given(asked), "up_to": head}
        self.store.write([Entry(Action.AUDIT_EXPORTED, actor, detail=detail)])
        return WRITERS[form](map(audit_row, self.store.rows(asked, head)))

    def prune(
        self,
        asked: AuditFilter,
        older_than_days: float,
        actor: Actor,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        archive: Callable[[Iterable[str]], None] | None = None,
    ) -> AuditPruned:
        """Removes rows in steps; their hashes stay. `archive` gets them as NDJSON before the first one goes."""
        if not isinstance(older_than_days, (int, float)) or not LEAST_DAYS <= older_than_days <= 36_500:
            raise inputs.BadRequest([("older_than_days", f"must be from {LEAST_DAYS:g} to 36,500")])
        reason = None if reason is None else inputs.reason(reason)
        before, head = self.store.cutoff(older_than_days * 86_400), self.store.head_id()
        due = self.store.prune_preview(asked, before, head)
        if dry_run or not due.rows:
            return AuditPruned(due.rows, before, due.oldest, due.newest, dry_run)
        if archive is not None:
            rows = (row for row in self.store.rows(asked, head) if row["at"] < before)
            archive(ndjson(map(audit_row, rows)))
        removed = self._remove(asked, PruneOrder(before, head, actor, reason, archived=archive is not None))
        return AuditPruned(removed, before, due.oldest, due.newest, False)

    def _remove(self, asked: AuditFilter, order: PruneOrder) -> int:
        removed = after = 0
        while True:
            step = self.store.prune_step(asked, order, after, self.rows_a_step)
            removed, after = removed + step.removed, step.last
            if step.removed < self.rows_a_step:
                return removed
            self.pause(0.01)

    def verify(self) -> ChainVerdict:
        """Walks the whole chain; the first hundred findings are kept."""
        links = self.store.chain()
        first = next(links)
        findings = list(islice(follow_chain(chain([first], links)), MOST_FINDINGS))
        return ChainVerdict(not findings, first.id, findings)
