"""Whose documents an object changes: ids and routing, in the text that PostgreSQL has for the stored row. Writes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.db.models import Field, Model, QuerySet, TextField
from django.db.models.functions import Cast

from outbox.django.tracked import OwnerField

Key = tuple[str, str, str | None]  # entity type, entity id, routing
AnyField: TypeAlias = "Field[Any, Any]"
# Python knows PostgreSQL's text of these. Expressions, and values such as Decimal or datetime, are read from the row.
_WITH_TEXT: Final = (str, int, UUID, type(None))


def fields_of(model: Any, owner: OwnerField) -> list[AnyField]:
    """The field of the id, and that of the routing."""
    given = [owner.field] if owner.routing is None else [owner.field, owner.routing]
    return [model._meta.pk if name == "pk" else model._meta.get_field(name) for name in given]


def keys(
    instance: Model, using: str, owners: Iterable[OwnerField], is_current: Callable[[AnyField], bool]
) -> list[Key]:
    """From the object where `is_current` says that its fields are as stored; all else from its row, by one query."""
    here: list[OwnerField] = []
    there: list[OwnerField] = []
    for owner in owners:
        fields = fields_of(type(instance), owner)
        known = all(is_current(field) and isinstance(_prepared(instance, field), _WITH_TEXT) for field in fields)
        (here if known else there).append(owner)
    return [*_held(instance, here), *stored(instance, using, there)]


def stored(instance: Model, using: str, owners: Sequence[OwnerField]) -> list[Key]:
    """From the row alone; none for an object that has no row yet.

    The row is locked as by an UPDATE: if another transaction has moved it and is not committed yet, that is waited for,
    because the row as it was before names an owner that it does not have any more.
    """
    model = type(instance)
    names = {field.attname: field.model for owner in owners for field in fields_of(model, owner)}
    texts: dict[str, str | None] = dict.fromkeys(names)
    # One query for each table, in the order in which Django writes them: a join would lock the child's row first.
    for table in (*reversed(model._meta.all_parents), model):
        here = [name for name, place in names.items() if place is table]
        id = getattr(instance, table._meta.pk.attname) or instance.pk  # of a parent, it may be set only by the save
        if not here or id is None:
            continue
        # Not by a manager of the program, whose joins and groups cannot be locked.
        rows: QuerySet[Any] = QuerySet(table).using(using).filter(pk=id).order_by("pk")
        found = rows.select_for_update(no_key=True).values_list(*(Cast(name, TextField()) for name in here)).first()
        texts |= dict(zip(here, found, strict=True)) if found else {}
    return _keys(model, owners, texts)


def _held(instance: Model, owners: Sequence[OwnerField]) -> list[Key]:
    model = type(instance)
    fields = [field for owner in owners for field in fields_of(model, owner)]
    return _keys(model, owners, {field.attname: _text(_prepared(instance, field)) for field in fields})


def _keys(model: type[Model], owners: Sequence[OwnerField], texts: Mapping[str, str | None]) -> list[Key]:
    found: list[Key] = []
    for owner in owners:
        id, *routing = (texts[field.attname] for field in fields_of(model, owner))
        if id is not None:
            found.append((owner.entity_type, id, routing[0] if routing else None))
    return found


def _prepared(instance: Model, field: AnyField) -> object:
    """As Django hands it to the driver: "7" of an integer field is 7."""
    value = getattr(instance, field.attname)
    return value if hasattr(value, "resolve_expression") else field.get_prep_value(value)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)  # of an Enum too: its value, which the driver sends
    return None if value is None else str(int(value) if isinstance(value, int) else value)
