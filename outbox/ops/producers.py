"""Attaching and detaching users' tables, with a look at what else a person must do. Writes no trigger itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Attachment(Protocol):
    @property
    def table(self) -> str: ...
    @property
    def entity_type(self) -> str: ...
    @property
    def id_column(self) -> str: ...
    @property
    def routing_column(self) -> str | None: ...
    @property
    def payload(self) -> bool: ...


class Attachments(Protocol):
    def attach(
        self, table: str, *, entity_type: str, id_column: str, routing_column: str | None, payload: bool
    ) -> Attachment: ...
    def detach(self, table: str) -> None: ...
    def all(self) -> Sequence[Attachment]: ...


@dataclass(frozen=True, slots=True)
class Attached:
    """`advice` says what is still missing before documents can be made, or nothing."""

    table: str
    entity_type: str
    id_column: str
    routing_column: str | None
    payload: bool
    advice: str = ""


class ProducerDesk:
    def __init__(self, attachments: Attachments, view: str, view_exists: Callable[[], bool]) -> None:
        self._attachments = attachments
        self._view = view
        self._view_exists = view_exists

    def attach(
        self, table: str, *, entity_type: str, id_column: str, routing_column: str | None, payload: bool
    ) -> Attached:
        done = self._attachments.attach(
            table, entity_type=entity_type, id_column=id_column, routing_column=routing_column, payload=payload
        )
        return Attached(
            done.table, done.entity_type, done.id_column, done.routing_column, done.payload, self._advice(payload)
        )

    def detach(self, table: str) -> None:
        self._attachments.detach(table)

    def _advice(self, payload: bool) -> str:
        if payload or self._view_exists():
            return ""
        return (
            f"there is no view {self._view} yet: until it is created, and the projector restarted, these events fail "
            "with OUTBOX_PAYLOAD_MISSING"
        )
