"""Attaches and detaches users' tables over a connection of its own, past any pooler. The triggers: `producers`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection

from outbox.ports import Attachment, AttachResult
from outbox.store import attached, producers
from outbox.store.pool import connect, translated
from outbox.store.producer_tables import CannotAttach


class PostgresAttachments:
    def __init__(self, direct_url: str, view: str) -> None:
        self._url = direct_url
        self._view = view

    def attach(
        self,
        table: str,
        *,
        entity_type: str,
        id_column: str | None,
        via: str | None,
        routing_column: str | None,
        payload: bool,
        columns: tuple[str, ...],
        per_row: bool,
    ) -> AttachResult:
        with self._acting() as connection:
            return producers.attach(
                connection,
                table,
                entity_type=entity_type,
                id_column=id_column,
                via=via,
                routing_column=routing_column,
                payload=payload,
                columns=columns,
                per_row=per_row,
                view=self._view,
            )

    def detach(self, table: str, *, entity_type: str | None) -> list[Attachment]:
        with self._acting() as connection:
            return producers.detach(connection, table, entity_type=entity_type)

    def all(self) -> list[Attachment]:
        with self._acting() as connection:
            return attached.attachments(connection)

    @contextmanager
    def _acting(self) -> Iterator[Connection[Any]]:
        with connect(self._url, application="outbox attach") as connection, translated(), _permitted():
            yield connection


@contextmanager
def _permitted() -> Iterator[None]:
    """Triggers are made by the table's owner; PostgreSQL's own words name the table."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        said = error.diag.message_primary or "permission denied"
        raise CannotAttach([f"{said}. Run this as the table's owner, who may also write to the outbox."]) from error
