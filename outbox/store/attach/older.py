"""Owns reading triggers of release 0.1.0, whose arguments said how their table is attached.

Any owner of a table can write such arguments, so what they say is compared and shown, and never run."""

import json
from collections.abc import Mapping
from typing import Any

from outbox.ports import Attachment
from outbox.store.attach.attachments import AttachedRow


def read(table: str, trigger: Mapping[str, Any]) -> AttachedRow:
    """Arguments that are none of ours read as nothing."""
    told = _told(trigger["about"])
    via, id_column = _text(told, "via"), _text(told, "id")
    columns = told.get("columns")
    wanted = Attachment(
        table,
        _text(told, "type") or "",
        id_column=id_column,
        via=via,
        columns=tuple(name for name in columns if isinstance(name, str)) if isinstance(columns, list) else (),
        per_row=told.get("per_row") is True,
        older=told.get("payload") is True,
    )
    partitions = told.get("partitions")
    path = tuple(name for name in trigger["path"] if name != "pg_temp")
    return AttachedRow(wanted, (), (), path, trigger["function"], partitions if isinstance(partitions, int) else 0)


def _told(arguments: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(bytes(arguments).rstrip(b"\0"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _text(told: Mapping[str, Any], name: str) -> str | None:
    value = told.get(name)
    return value if isinstance(value, str) else None
