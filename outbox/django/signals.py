"""Connects tracked models to Django's signals, and writes their refreshes in the transaction of the change."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Final

from django.db import connections
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from outbox.django.keys import AnyField, Key, fields_of, keys, stored
from outbox.django.links import LinkedSide, linked_keys, links_of
from outbox.django.tracked import Tracked, note_written, owners_of
from outbox.producers import call, writing
from outbox.producers.connection import ConnectionKind, refuse_autocommit

_BEFORE: Final = "_outbox_before"
_CLEARED: Final = "_outbox_cleared"


def connect(models: Iterable[type[Model]]) -> None:
    """Each by its own class: Django sends signals for the class that is saved, a child or a proxy included."""
    for model in models:
        uid = f"outbox.{model._meta.label}"
        links = links_of(model)
        tracked = issubclass(model, Tracked)
        if tracked:
            pre_save.connect(_before_save, sender=model, dispatch_uid=uid)
            post_save.connect(_after_save, sender=model, dispatch_uid=uid)
            for link in links:
                _connect_set(link.field)
        if tracked or any(issubclass(link.other, Tracked) for link in links):
            pre_delete.connect(_before_delete, sender=model, dispatch_uid=uid)
            post_delete.connect(_after_delete, sender=model, dispatch_uid=uid)


def _connect_set(field: Any) -> None:
    """Once, also if both sides are tracked or a child's table inherits it."""
    uid = f"outbox.{field.model._meta.label}.{field.name}"
    m2m_changed.connect(partial(_changed_set, field), sender=field.remote_field.through, weak=False, dispatch_uid=uid)


def _before_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    _require_transaction(using)
    may_move = partial(_may_change, update_fields)
    moves = [owner for owner in owners_of(sender) if any(map(may_move, fields_of(sender, owner)))]
    setattr(instance, _BEFORE, stored(instance, using, moves))


def _after_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    now = keys(instance, using, owners_of(sender), partial(_is_as_saved, update_fields))
    _write([*instance.__dict__.pop(_BEFORE, ()), *now], using)


def _before_delete(sender: Any, instance: Any, using: str, origin: Any = None, **_: Any) -> None:
    """What a cascade or a queryset deletes was just read; an object of the program's own may have been changed, and its
    parent's object is made from it."""
    _require_transaction(using)
    own = isinstance(origin, sender) and origin.pk == instance.pk
    found = keys(instance, using, owners_of(sender), lambda field: field.primary_key or not own)
    setattr(instance, _BEFORE, [*found, *linked_keys(instance, using)])


def _after_delete(sender: Any, instance: Any, using: str, **_: Any) -> None:
    _write(instance.__dict__.pop(_BEFORE, ()), using)


def _changed_set(field: Any, instance: Any, action: str, reverse: bool, pk_set: Any, using: str, **_: Any) -> None:
    """Of a many-to-many field: both sides, as far as they are tracked."""
    link = LinkedSide(field, reverse)
    if action == "pre_clear":
        setattr(instance, _CLEARED, link.ids(instance, using))
    elif action in ("post_add", "post_remove", "post_clear"):
        ids = instance.__dict__.pop(_CLEARED, ()) if action == "post_clear" else pk_set
        here = keys(instance, using, owners_of(type(instance)), lambda field: field.primary_key)
        _write([*here, *link.keys(ids, using)], using)


def _require_transaction(using: str) -> None:
    """Before the row is written. `Tracked.save` opens one; `save_base` does not."""
    connection = connections[using]
    if not connection.in_atomic_block and connection.get_autocommit():
        raise refuse_autocommit(ConnectionKind.DJANGO)


def _may_change(update_fields: Collection[str] | None, field: AnyField) -> bool:
    """By a save. A primary key stays: to save an object with another one is to write another row."""
    return not field.primary_key and (field.generated or _is_written(update_fields, field))


def _is_as_saved(update_fields: Collection[str] | None, field: AnyField) -> bool:
    """After a save the object holds what is stored: not what the save left out, nor what the database computes."""
    return field.primary_key or (not field.generated and _is_written(update_fields, field))


def _is_written(update_fields: Collection[str] | None, field: AnyField) -> bool:
    return update_fields is None or bool({field.name, field.attname} & set(update_fields))


def _write(found: Iterable[Key], using: str) -> None:
    for entity_type, entity_id, routing in dict.fromkeys(found):
        event = call.refresh(entity_type, entity_id, routing=routing)
        note_written(writing.write(connections[using], event), using)
