"""Owns the rows of `search_outbox_attachments`: what is attached, as only the owner writes it. Installs no trigger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from psycopg import sql

from outbox.ports import Attachment
from outbox.store.attach.tables import SourceTable
from outbox.store.schema import files


@dataclass(frozen=True, slots=True)
class AttachedRow:
    """An attachment with what `attach` found out. `used`: columns of the changed row that its query reads. `watched`:
    on an UPDATE, only rows in which one of these changed count; none: all do. `path`: where the query finds names."""

    wanted: Attachment
    used: tuple[str, ...]
    watched: tuple[str, ...]
    path: tuple[str, ...]
    function: str
    partitions: int = 0
    """Those that the table had when it was attached, itself included; 0 where it is not partitioned."""

    @property
    def number(self) -> int:
        """Computed from the content, so that a script may hold it, and another query has another."""
        wanted = self.wanted
        told = [wanted.table, *wanted.way, wanted.columns, self.used, self.path]
        return int.from_bytes(sha256(json.dumps(told).encode()).digest()[:8]) >> 1

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> AttachedRow:
        wanted = Attachment(
            row["named"],
            row["entity_type"],
            id_column=row["id_column"],
            via=row["via"],
            columns=tuple(row["columns"]),
            per_row=row["per_row"],
        )
        used, watched, path = (tuple(row[name]) for name in ("used", "watched", "path"))
        return cls(wanted, used, watched, path, row["function"], row["partitions"])


def put(source: SourceTable, row: AttachedRow) -> sql.Composed:
    wanted = row.wanted
    about = {"id": row.number, "source": source.name.as_string(), "named": wanted.table, **wanted.how()}
    about |= {"used": row.used, "watched": row.watched, "path": row.path}
    about |= {"partitions": row.partitions, "function": row.function}
    values = {name: _texts(each) if isinstance(each, tuple) else sql.Literal(each) for name, each in about.items()}
    return sql.SQL(files.text("producers", "attachment")).format(attachments=_table(source), **values)


def close(source: SourceTable, number: int) -> sql.Composed:
    return sql.SQL(files.text("producers", "close_attachment")).format(
        attachments=_table(source), id=sql.Literal(number)
    )


def _table(source: SourceTable) -> sql.Identifier:
    return sql.Identifier(source.outbox_schema, "search_outbox_attachments")


def _texts(values: Sequence[str]) -> sql.Composed:
    return sql.SQL("array[{}]::text[]").format(sql.SQL(", ").join(map(sql.Literal, values)))
