"""Writes answers: JSON with every digit of a payload, times with their zone. It decides no status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any
from uuid import UUID

import orjson
from starlette.responses import Response

from outbox.ops.stored import StoredEvent, failure_type

# Named once: `asdict` copies every value of every row, 60 us an event. Up to 16 KB of detail are for one event alone.
_COLUMNS = tuple(field.name for field in fields(StoredEvent) if field.name != "error_detail")
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_UTC_Z


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(value), status, dict(headers or {}), media_type="application/json")


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=_OPTIONS)


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return dict(value)
        case tuple() | set() | frozenset():
            return list(value)
        case UUID():
            return str(value)
        case bytes():
            # Bytes are json columns: text that PostgreSQL has checked, passed on as it is.
            return orjson.Fragment(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def event(stored: StoredEvent) -> dict[str, Any]:
    """An event as lists and details show it: its row without the payload, and what follows from it."""
    told = {name: getattr(stored, name) for name in _COLUMNS}
    told["trace_id"] = stored.trace_id
    told["failure_type"] = failure_type(stored.error_reason) if stored.error_reason else None
    return told
