"""Whose documents the rows of a model change: the arguments of `track`. Refuses what cannot be followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Column, inspect
from sqlalchemy.orm import Mapper, QueryableAttribute

from outbox.errors import WrongArgument


@dataclass(frozen=True, slots=True)
class OwnerColumn:
    """Whose document changes with a row: the entity type, and the column that has the entity's id."""

    entity_type: str
    attribute: QueryableAttribute[Any] | None = None
    routing: QueryableAttribute[Any] | None = None


Models: TypeAlias = Mapping[type[Any], str | OwnerColumn | Sequence[str | OwnerColumn]]


def by(
    entity_type: str, attribute: QueryableAttribute[Any], *, routing: QueryableAttribute[Any] | None = None
) -> OwnerColumn:
    """The document of another entity, by the column that refers to it, such as `by("article", Comment.article_id)`.

    Null refreshes nobody. A row that moves refreshes the old and the new entity.
    """
    return OwnerColumn(entity_type, attribute, routing)


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    """An owner by the names of its attributes on the model."""

    entity_type: str
    id: str
    routing: str | None

    @property
    def names(self) -> list[str]:
        return [self.id] if self.routing is None else [self.id, self.routing]


def mapper_of(model: type[Any]) -> Mapper[Any]:
    mapper = inspect(model, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise WrongArgument(f"track: {model!r} is not a mapped class")
    return mapper


def owners_of(model: type[Any], owners: object) -> list[OwnerKeys]:
    given = [owners] if isinstance(owners, (str, OwnerColumn)) else owners
    if not isinstance(given, Sequence) or not given:
        raise WrongArgument(f"track: {model.__name__} has no owner. {_REMEDY}")
    return [_keys(mapper_of(model), OwnerColumn(each) if isinstance(each, str) else each) for each in given]


_REMEDY: Final = 'Give an entity type such as "article", by("article", Comment.article_id), or a list of these'


def _keys(mapper: Mapper[Any], owner: object) -> OwnerKeys:
    name = mapper.class_.__name__
    if not (isinstance(owner, OwnerColumn) and isinstance(owner.entity_type, str) and owner.entity_type):
        raise WrongArgument(f"track: an owner of {name} has no entity type. {_REMEDY}")
    if owner.attribute is not None:
        routing = None if owner.routing is None else _column(mapper, owner.routing)
        return OwnerKeys(owner.entity_type, _column(mapper, owner.attribute), routing)
    if len(mapper.primary_key) != 1:
        several = f'track: the key of {name} has several columns. Name one: by("{owner.entity_type}", {name}.x)'
        raise WrongArgument(several)
    return OwnerKeys(owner.entity_type, mapper.get_property_by_column(mapper.primary_key[0]).key, None)


def _column(mapper: Mapper[Any], attribute: object) -> str:
    name = mapper.class_.__name__
    if not isinstance(attribute, QueryableAttribute):
        raise WrongArgument(f"track: {attribute!r} is no attribute of {name}. Give the attribute itself: {name}.x")
    of: Any = attribute.class_
    stored = attribute.key in mapper.column_attrs and isinstance(mapper.columns[attribute.key], Column)
    if not stored or not issubclass(mapper.class_, of):
        raise WrongArgument(f"track: {attribute} is no column of {name}. Name the column of the key")
    return attribute.key
