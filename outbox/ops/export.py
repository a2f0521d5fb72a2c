"""Writes audit rows as CSV, JSON and NDJSON, piece by piece. JSON keeps every digit; CSV cannot be a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

# What a spreadsheet takes for a formula, full-width signs included; a quote in front makes it text.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Row = Mapping[str, Any]


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
