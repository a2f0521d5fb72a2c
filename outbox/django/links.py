"""Many-to-many fields, each as seen from one of its sides: which objects of the other side are linked, and whose
documents these change. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from outbox.django.keys import Key, keys
from outbox.django.tracked import Tracked, owners_of


@dataclass(frozen=True)
class LinkedSide:
    field: Any
    reverse: bool  # from the side that does not have the field

    @property
    def side(self) -> type[Model]:
        found: type[Model] = self.field.related_model if self.reverse else self.field.model
        return found

    @property
    def other(self) -> type[Model]:
        return LinkedSide(self.field, not self.reverse).side

    @property
    def key_here(self) -> str:
        """The foreign key to this side."""
        name: str = self.field.m2m_reverse_field_name() if self.reverse else self.field.m2m_field_name()
        return name

    def is_between(self, instance: Model, other: type[Model]) -> bool:
        return isinstance(instance, self.side) and self.other is other

    def ids(self, instance: Model, using: str) -> Collection[Any]:
        """Of the other side's objects, if these are tracked."""
        if not issubclass(self.other, Tracked):
            return ()
        rows = self.field.remote_field.through._base_manager.using(using).filter(**{self.key_here: instance})
        return set(rows.values_list(self._other_key().attname, flat=True))

    def keys(self, ids: Collection[Any], using: str) -> list[Key]:
        """Of the other side's objects, which are read."""
        owners = owners_of(self.other)
        if not owners or not ids:
            return []
        found = self.other._base_manager.using(using).filter(**{f"{self._other_key().target_field.attname}__in": ids})
        return [key for each in found for key in keys(each, using, owners, lambda _: True)]

    def _other_key(self) -> Any:
        return self.field.remote_field.through._meta.get_field(LinkedSide(self.field, not self.reverse).key_here)


def links_of(model: Any) -> list[LinkedSide]:
    """Also those that it inherits."""
    theirs = (relation.field for relation in model._meta.related_objects if relation.many_to_many)
    return [
        *(LinkedSide(field, False) for field in model._meta.many_to_many),
        *(LinkedSide(field, True) for field in theirs),
    ]


def linked_keys(instance: Model, using: str) -> list[Key]:
    """Of all that loses a link when this object is deleted. What it inherits, its parent's deletion brings."""
    own = instance._meta.concrete_model
    links = [link for link in links_of(type(instance)) if link.side._meta.concrete_model is own]
    return [key for link in links for key in link.keys(link.ids(instance, using), using)]
