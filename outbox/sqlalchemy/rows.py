"""Whose document a row changes: ids and routing, in the text that PostgreSQL has for the stored row. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import CHAR, NCHAR, Connection, Integer, String, Text, Uuid, cast, select, tuple_
from sqlalchemy import Enum as EnumType
from sqlalchemy.orm import Mapper

from outbox.sqlalchemy.owners import OwnerKeys

Key = tuple[str, str, str | None]  # entity type, entity id, routing
Identity = tuple[Any, ...]  # the values of a primary key

# Python's text of these values is PostgreSQL's, in a column of this type. All else is read from the row.
_WITH_TEXT: Final[Mapping[type, type]] = {int: Integer, str: String, UUID: Uuid}
_WITH_OTHER_TEXT: Final = (CHAR, NCHAR, EnumType)
# Parameters of one statement. asyncpg takes at most 32,767.
_MOST_PARAMETERS: Final = 10_000


def known(
    mapper: Mapper[Any], owners: Iterable[OwnerKeys], values: Mapping[str, object]
) -> tuple[list[Key], list[OwnerKeys]]:
    """The keys that these values tell in PostgreSQL's text, and the owners whose key only the row tells."""
    keys: list[Key] = []
    unknown: list[OwnerKeys] = []
    for owner in owners:
        if all(name in values and _has_text(values[name], mapper.columns[name].type) for name in owner.names):
            keys += _key(owner, [None if values[name] is None else str(values[name]) for name in owner.names])
        else:
            unknown.append(owner)
    return keys, unknown


def _has_text(value: object, kind: object) -> bool:
    """Types of the program's own may write another value than the object has."""
    plain = type(kind).__module__.startswith("sqlalchemy.") and not isinstance(kind, _WITH_OTHER_TEXT)
    plain = plain and getattr(kind, "native_uuid", True)  # else a UUID is stored as char(32)
    return plain and (value is None or isinstance(kind, _WITH_TEXT.get(type(value), ())))


def stored(
    connection: Connection,
    mapper: Mapper[Any],
    owners: Sequence[OwnerKeys],
    identities: Sequence[Identity],
    lock: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Identity, list[Key]]]:
    """By the rows, in PostgreSQL's text. Locked by their primary keys' order, as in each other flush."""
    if not owners:
        return
    key = mapper.primary_key
    columns = [mapper.columns[name] for owner in owners for name in owner.names]
    asked = select(*key, *(cast(each, Text) for each in columns)).select_from(mapper.persist_selectable).order_by(*key)
    if lock is not None:
        asked = asked.with_for_update(of=columns, **lock)
    part = _MOST_PARAMETERS // len(key)
    for start in range(0, len(identities), part):
        for row in connection.execute(asked.where(tuple_(*key).in_(identities[start : start + part]))):
            texts = iter(row[len(key) :])
            keys = [found for owner in owners for found in _key(owner, [next(texts) for _ in owner.names])]
            yield tuple(row[: len(key)]), keys


def _key(owner: OwnerKeys, texts: Sequence[str | None]) -> list[Key]:
    id, routing = [*texts, None][:2]
    return [] if id is None else [(owner.entity_type, id, routing)]
