"""Owns the SQL calls of producers, `outbox_enqueue` and `outbox_refresh`, in each style of parameters."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral
from typing import Any, Final, Literal, TypedDict, Unpack
from uuid import UUID

from outbox.errors import WrongEntity

Payload = Mapping[str, Any] | str | bytes | None
Function = Literal["outbox_enqueue", "outbox_refresh"]

# A payload travels as text: a driver whose json type has an encoder of the program's own would encode it twice.
_CAST: Final = {"payload": "cast(cast({} as text) as json)", "version": "cast({} as bigint)"}
_PLAIN: Final = "cast({} as text)"


@dataclass(frozen=True)
class ProducerCall:
    """One event, as a call that returns its id."""

    function: Function
    arguments: Mapping[str, Any]

    def sql(self, mark: Callable[[int, str], str]) -> str:
        """`mark` writes a parameter, by its number from 1 and its name."""
        given = (
            f"{name} => {_CAST.get(name, _PLAIN).format(mark(number, name))}"
            for number, name in enumerate(self.arguments, 1)
        )
        return f"select {self.function}({', '.join(given)})"

    @property
    def by_percent(self) -> str:
        """For psycopg and Django."""
        return self.sql(lambda _, name: f"%({name})s")


class RefreshColumns(TypedDict, total=False):
    routing: str | None
    traceparent: str | None


class EventColumns(RefreshColumns, total=False):
    version: int | None
    idempotency_key: str | None


def enqueue(
    entity_type: str, entity_id: object, op: str, payload: Payload = None, **more: Unpack[EventColumns]
) -> ProducerCall:
    named = {**_entity(entity_type, entity_id), "op": op, "payload": payload_text(payload), **more}
    return ProducerCall("outbox_enqueue", named)


def refresh(entity_type: str, entity_id: object, **more: Unpack[RefreshColumns]) -> ProducerCall:
    return ProducerCall("outbox_refresh", {**_entity(entity_type, entity_id), **more})


def _entity(entity_type: object, entity_id: object) -> dict[str, str]:
    if not isinstance(entity_type, str):
        raise WrongEntity(f"{type(entity_type).__name__} is no entity type: give its name, such as 'article'")
    return {"entity_type": entity_type, "entity_id": _id_text(entity_id)}


def _id_text(entity_id: object) -> str:
    """As PostgreSQL writes it. Refuses all else that has a text: an event of entity "None" would refresh nobody."""
    match entity_id:
        case Enum() | bool():  # some are also text or a number, and no id
            pass
        case str() | UUID():
            return str(entity_id)
        case Integral():  # also numpy's
            return str(int(entity_id))
        case Decimal() if entity_id.is_finite():
            return f"{entity_id:f}"
        case None:
            raise WrongEntity("None is no id: flush the session (or save the object) first, which gives it one")
    kind = type(entity_id).__name__
    raise WrongEntity(f"{kind} is no id: give text, an int, a Decimal or a UUID; of an object or a row, its .id")


def event_id(value: object) -> UUID:
    """The id as the driver gave it: asyncpg and psycopg as a uuid, others as text."""
    return value if isinstance(value, UUID) else UUID(str(value))


def payload_text(payload: Payload) -> str | None:
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return payload.decode()
    return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> str:
    """Times and ids have one obvious text. The caller must convert all else: a Decimal may be number or text."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form: convert it, or give the payload as JSON text")
