"""`Tracked`, the base of models whose changes refresh documents, and whose documents these are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from django.db import router, transaction

if TYPE_CHECKING:
    from django.db.models import Model

    _Base = Model
else:
    _Base = object  # a model cannot be defined before Django has loaded its apps, and this module is imported by one


@dataclass(frozen=True, slots=True)
class OwnerField:
    """Whose document changes with a row: the entity type, and the field that has the entity's id."""

    entity_type: str
    field: str = "pk"
    routing: str | None = None


def by(entity_type: str, field: str, *, routing: str | None = None) -> OwnerField:
    """The document of another entity, by the field that refers to it, such as `by("article", "article_id")`.

    Null refreshes nobody. A row that moves refreshes the old and the new entity.
    """
    return OwnerField(entity_type, field, routing)


class Tracked(_Base):
    """Before `models.Model` among the bases. `outbox` says whose documents change: an entity type (whose id is the
    model's primary key), `by(...)`, or a list of both."""

    outbox: ClassVar[str | OwnerField | Sequence[str | OwnerField]]

    def save(self, *args: Any, using: str | None = None, **kwargs: Any) -> None:
        """One transaction for the row and its event: Django sends its signals outside of the one of the row."""
        using = using or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using=using, savepoint=False):
            super().save(*args, using=using, **kwargs)


def owners_of(model: type[Any]) -> list[OwnerField]:
    given = getattr(model, "outbox", ()) if issubclass(model, Tracked) else ()
    listed = [given] if isinstance(given, (str, OwnerField)) else list(given)
    return [OwnerField(each) if isinstance(each, str) else each for each in listed]


_COLLECTING: Final[ContextVar[list[UUID] | None]] = ContextVar("outbox_written", default=None)


@contextmanager
def written() -> Iterator[list[UUID]]:
    """The ids of the events that tracked models write inside, once they are committed; for `Outbox.wait`."""
    ids: list[UUID] = []
    token = _COLLECTING.set(ids)
    try:
        yield ids
    finally:
        _COLLECTING.reset(token)


def note_written(id: UUID, using: str) -> None:
    ids = _COLLECTING.get()
    if ids is not None:
        transaction.on_commit(lambda: ids.append(id), using=using)
