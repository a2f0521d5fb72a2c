"""Our settings from Django's: the address of one of DATABASES, and the variables of OUTBOX. Connects to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

if TYPE_CHECKING:
    from outbox.library import AsyncOutbox, Outbox

_DATABASE: Final = "DATABASE"  # beside the variables: which of DATABASES
# Late imports, all of them here: `manage.py` imports this module for every command.
# ruff: noqa: PLC0415


def given() -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(settings, "OUTBOX", {})
    return found


def alias() -> str:
    return str(given().get(_DATABASE, "default"))


def environment() -> dict[str, str]:
    """As the commands read it. What Django's settings do not name, the process's own variables say."""
    named = {name: _text(value) for name, value in given().items() if name != _DATABASE}
    return {"DATABASE_URL": dsn(alias()), **named}


def _text(value: object) -> str:
    import json

    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def dsn(using: str) -> str:
    """The connection string of one of DATABASES, with its password: for the driver only."""
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import Conninfo

    try:
        connection = connections[using]
    except ConnectionDoesNotExist:
        raise ImproperlyConfigured(f"DATABASES has no {using!r}, which OUTBOX names") from None
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(f"DATABASES[{using!r}] is {connection.vendor}, and the outbox is in PostgreSQL")
    # Django's own options (pool, server_side_binding, isolation_level) are left out: libpq does not know them.
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    found = connection.get_connection_params()
    return make_conninfo("", **{name: value for name, value in found.items() if name in known and value is not None})


def get_outbox() -> Outbox:
    """An `Outbox` for the database of Django's settings. Close it, or keep one for the life of the process."""
    from outbox.library import Outbox

    return Outbox(dsn(alias()))


def get_async_outbox() -> AsyncOutbox:
    from outbox.library import AsyncOutbox

    return AsyncOutbox(dsn(alias()))
