"""Connects tracked models to Django's signals, and writes their refreshes in the transaction of the change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from django.db import connections
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from outbox.django.keys import AnyField, Key, fields_of, keys, stored
from outbox.django.links import LinkedSide, linked_keys, links_of
from outbox.django.tracked import Tracked, note_saved, note_written, owners_of, owners_of_deleted
from outbox.producers import call, writing
from outbox.producers.connection import ConnectionKind, refuse_autocommit

_BEFORE: Final = "_outbox_before"
_CLEARED: Final = "_outbox_cleared_"


def connect(models: Iterable[type[Model]]) -> None:
    """Each by its own class: Django sends signals for the class that is saved, a child or a proxy included."""
    sets: defaultdict[Any, list[Any]] = defaultdict(list)
    for model in models:
        uid = f"outbox.{model._meta.label}"
        links = links_of(model)
        tracked = issubclass(model, Tracked)
        if tracked:
            pre_save.connect(_before_save, sender=model, dispatch_uid=uid)
            post_save.connect(_after_save, sender=model, dispatch_uid=uid)
            for link in links:
                sets[link.field.remote_field.through].append(link.field)
        if tracked or any(issubclass(link.other, Tracked) for link in links):
            pre_delete.connect(_before_delete, sender=model, dispatch_uid=uid)
            post_delete.connect(_after_delete, sender=model, dispatch_uid=uid)
    for through, fields in sets.items():
        each_once = list(dict.fromkeys(fields))  # both sides may be tracked, and a child's table inherits fields
        changed = partial(_changed_set, each_once)
        m2m_changed.connect(changed, sender=through, weak=False, dispatch_uid=f"outbox.{through._meta.label}")


def _before_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    _require_transaction(using)
    may_move = partial(_may_change, update_fields)
    moves = [owner for owner in owners_of(sender) if any(map(may_move, fields_of(sender, owner)))]
    _remember(instance, stored(instance, using, moves))


def _after_save(sender: Any, instance: Any, using: str, update_fields: Collection[str] | None, **_: Any) -> None:
    now = keys(instance, using, owners_of(sender), partial(_is_as_saved, update_fields))
    _write([*_remembered(instance), *now], using)
    note_saved(instance)


def _before_delete(instance: Any, using: str, **_: Any) -> None:
    """From the row: an object of the program's own may have been changed, and one that a cascade or a queryset deletes
    may have been moved since it was read."""
    _require_transaction(using)
    found = keys(instance, using, owners_of_deleted(instance), lambda field: field.primary_key)
    _remember(instance, [*found, *linked_keys(instance, using)])


def _after_delete(instance: Any, using: str, **_: Any) -> None:
    _write(_remembered(instance), using)


def _remember(instance: Any, found: Iterable[Key]) -> None:
    """Beside what is remembered already: a receiver before ours may save the object once more."""
    vars(instance).setdefault(_BEFORE, {}).update(dict.fromkeys(found))


def _remembered(instance: Any) -> Iterable[Key]:
    found: dict[Key, None] = vars(instance).pop(_BEFORE, {})
    return found


def _changed_set(
    fields: Sequence[Any],
    sender: Any,
    instance: Any,
    action: str,
    reverse: bool,
    model: Any,
    pk_set: Collection[Any] | None,
    using: str,
    **_: Any,
) -> None:
    """Both sides, as far as they are tracked. Several fields may be through one table: Django does not say of which of
    those between the same two models the signal is, and to clear one is to delete the rows of all."""
    every = [LinkedSide(field, side) for field in fields for side in (False, True)]
    links = [link for link in every if link.reverse == reverse and link.is_between(instance, model)]
    cleared = f"{_CLEARED}{sender._meta.label}"
    if action == "pre_clear":
        keys_here = {link.key_here for link in links}
        vars(instance)[cleared] = [(link, link.ids(instance, using)) for link in every if link.key_here in keys_here]
    elif action in ("post_add", "post_remove", "post_clear"):
        here = keys(instance, using, owners_of(type(instance)), lambda field: field.primary_key)
        changed = [*vars(instance).pop(cleared, ()), *((link, pk_set or ()) for link in links)]
        _write([*here, *(key for link, ids in changed for key in link.keys(ids, using))], using)


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
