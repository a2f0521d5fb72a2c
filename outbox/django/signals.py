"""Connects tracked models to Django's signals, and writes their refreshes in the transaction of the change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from django.db import connections
from django.db.models import Field, Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from outbox.django.tracked import OwnerField, Tracked, note_written, owners_of
from outbox.producers import call, writing
from outbox.producers.connection import ConnectionKind, refuse_autocommit

Key = tuple[str, str, str | None]  # entity type, entity id, routing
_BEFORE: Final = "_outbox_before"
_CHANGES: Final = ("post_add", "post_remove", "pre_clear", "post_clear")


def connect(models: Iterable[type[Model]]) -> None:
    """Each by its own class: Django sends signals for the class that is saved, a child or a proxy included."""
    for model in models:
        if issubclass(model, Tracked):
            uid = f"outbox.{model._meta.label}"
            for signal, handle in ((pre_save, _before_save), (post_save, _after_save), (pre_delete, _before_delete)):
                signal.connect(handle, sender=model, dispatch_uid=uid)
            post_delete.connect(_after_delete, sender=model, dispatch_uid=uid)
            for field in model._meta.many_to_many:
                _connect_set(field)


def _connect_set(field: Any) -> None:
    """Once, also if a child's table inherits it."""
    uid = f"outbox.{field.model._meta.label}.{field.name}"
    m2m_changed.connect(partial(_changed_set, field), sender=field.remote_field.through, weak=False, dispatch_uid=uid)


def _before_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    _require_transaction(using)
    moves = [owner for owner in owners_of(sender) if _may_move(sender, owner, update_fields)]
    setattr(instance, _BEFORE, _stored(sender, instance, using, moves))


def _after_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    owners = owners_of(sender)
    current = [owner for owner in owners if _is_saved(sender, owner, update_fields) and _is_plain(instance, owner)]
    # What was not saved, or is an SQL expression, is read from the database.
    others = [owner for owner in owners if owner not in current]
    _write(
        [*instance.__dict__.pop(_BEFORE, ()), *_held(instance, current), *_stored(sender, instance, using, others)],
        using,
    )


def _before_delete(sender: Any, instance: Any, using: str, origin: Any = None, **_: Any) -> None:
    """What a cascade or a queryset deletes was just read; an object of the program's own may have been changed."""
    _require_transaction(using)
    owners = owners_of(sender)
    found = _stored(sender, instance, using, owners) if origin is instance else _held(instance, owners)
    setattr(instance, _BEFORE, list(found))


def _after_delete(sender: Any, instance: Any, using: str, **_: Any) -> None:
    _write(instance.__dict__.pop(_BEFORE, ()), using)


def _changed_set(field: Any, instance: Any, action: str, reverse: bool, pk_set: Any, using: str, **_: Any) -> None:
    """Of a many-to-many field: the side that has the field is tracked."""
    if action not in _CHANGES:
        return
    if not reverse:
        _write(_held(instance, owners_of(type(instance))), using)
        return
    if action == "pre_clear":
        through, mine, theirs = field.remote_field.through, field.m2m_reverse_field_name(), field.m2m_field_name()
        links = through._base_manager.using(using).filter(**{mine: instance.pk})
        pk_set = set(links.values_list(f"{theirs}_id", flat=True))
    for found in field.model._base_manager.using(using).filter(pk__in=pk_set or ()):
        _write(_held(found, owners_of(field.model)), using)


def _require_transaction(using: str) -> None:
    """Before the row is written. `Tracked.save` opens one; `save_base` does not."""
    connection = connections[using]
    if not connection.in_atomic_block and connection.get_autocommit():
        raise refuse_autocommit(ConnectionKind.DJANGO)


def names(model: Any, owner: OwnerField) -> list[str]:
    """The attributes that hold the id and the routing."""
    given = [owner.field] if owner.routing is None else [owner.field, owner.routing]
    return [_field(model, name).attname for name in given]


def _field(model: Any, name: str) -> Field[Any, Any]:
    found: Field[Any, Any] = model._meta.pk if name == "pk" else model._meta.get_field(name)
    return found


def _may_move(model: Any, owner: OwnerField, update_fields: Collection[str] | None) -> bool:
    """A primary key stays: to save an object with another one is to write another row."""
    moving = owner.routing is not None or not _field(model, owner.field).primary_key
    return moving and _is_saved(model, owner, update_fields)


def _is_saved(model: Any, owner: OwnerField, update_fields: Collection[str] | None) -> bool:
    given = (owner.field, owner.routing or owner.field)
    fields = [_field(model, name) for name in given]
    return update_fields is None or any({field.name, field.attname} & set(update_fields) for field in fields)


def _is_plain(instance: Any, owner: OwnerField) -> bool:
    values = (getattr(instance, name) for name in names(type(instance), owner))
    return not any(hasattr(value, "resolve_expression") for value in values)


def _held(instance: Any, owners: Iterable[OwnerField]) -> list[Key]:
    return [
        key
        for owner in owners
        for key in _key(owner, [getattr(instance, name) for name in names(type(instance), owner)])
    ]


def _stored(model: Any, instance: Any, using: str, owners: Sequence[OwnerField]) -> list[Key]:
    """One query per object, and none for those that have only just been made."""
    if not owners or instance.pk is None:
        return []
    asked = [name for owner in owners for name in names(model, owner)]
    row = model._base_manager.using(using).filter(pk=instance.pk).values(*asked).first()
    if row is None:
        return []
    return [key for owner in owners for key in _key(owner, [row[name] for name in names(model, owner)])]


def _key(owner: OwnerField, values: Sequence[object]) -> Iterable[Key]:
    id, routing = values[0], values[1] if len(values) > 1 else None
    if id is not None:
        yield owner.entity_type, str(id), None if routing is None else str(routing)


def _write(keys: Iterable[Key], using: str) -> None:
    for entity_type, entity_id, routing in dict.fromkeys(keys):
        event = call.refresh(entity_type, entity_id, routing=routing)
        note_written(writing.write(connections[using], event), using)
