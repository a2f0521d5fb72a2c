"""`Tracked`, the base of models whose changes refresh documents, and whose documents these are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from uuid import UUID

from django.db import router, transaction

if TYPE_CHECKING:
    from django.db.models import Model

    _Base = Model
else:
    _Base = object  # a model cannot be defined before Django has loaded its apps, and this module is imported by one

_ROW_WRITTEN: Final = "_outbox_row_written"  # and its events are not
_KEEPS_PARENTS: Final = "_outbox_keeps_parents"


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


Owners: TypeAlias = str | OwnerField | Sequence[str | OwnerField]


class Tracked(_Base):
    """Before `models.Model` among the bases. `outbox` says whose documents change: an entity type (whose id is the
    model's primary key), `by(...)`, or a list of both."""

    outbox: ClassVar[Owners]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """One transaction for the row and its event: Django sends its signals outside of the one of the row.

        Inside of the program's own it ends that one only if a row could be committed without its event: what fails
        before, such as a receiver of pre_save that validates, can be caught as with any model.
        """
        positional = args[2] if len(args) > 2 else None  # deprecated, until Django 6.0
        using = kwargs.get("using") or positional or router.db_for_write(type(self), instance=self)
        inside = transaction.get_connection(using).in_atomic_block
        with nullcontext() if inside else transaction.atomic(using=using, savepoint=False):
            try:
                super().save(*args, **kwargs)
            except BaseException:
                if vars(self).pop(_ROW_WRITTEN, False):
                    transaction.set_rollback(True, using=using)
                raise

    def _save_table(self, *args: Any, **kwargs: Any) -> Any:
        """Between pre_save and post_save. Another receiver of post_save may fail before ours."""
        found = super()._save_table(*args, **kwargs)  # type: ignore[misc]
        vars(self)[_ROW_WRITTEN] = True
        return found

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        vars(self)[_KEEPS_PARENTS] = keep_parents
        return super().delete(using=using, keep_parents=keep_parents)


def note_saved(instance: Tracked) -> None:
    """The row has its events."""
    vars(instance).pop(_ROW_WRITTEN, None)


def declared_by(model: type[Any]) -> list[OwnerField]:
    """Without those that a model with a table of its own declares for it."""
    if not issubclass(model, Tracked):
        return []
    declaring: Any = next((base for base in model.__mro__ if "outbox" in vars(base)), None)
    if declaring is None or any(issubclass(parent, declaring) for parent in model._meta.all_parents):
        return []
    given: Owners = declaring.outbox
    listed = [given] if isinstance(given, (str, OwnerField)) else list(given)
    return [OwnerField(each) if isinstance(each, str) else each for each in listed]


def owners_of(model: Any) -> list[OwnerField]:
    """Also those of the tables that it inherits from: its rows are theirs too."""
    inherited = [
        replace(owner, field=parent._meta.pk.name) if owner.field == "pk" else owner
        for parent in model._meta.all_parents
        for owner in declared_by(parent)
    ]
    return [*declared_by(model), *inherited]


def owners_of_deleted(instance: Any) -> list[OwnerField]:
    """For a parent's row Django sends signals of its own, unless the row stays."""
    model = type(instance)
    if vars(instance).get(_KEEPS_PARENTS):
        return owners_of(model)
    return [owner for one in dict.fromkeys((model, model._meta.concrete_model)) for owner in declared_by(one)]


_COLLECTING: Final[ContextVar[tuple[list[UUID], ...]]] = ContextVar("outbox_written", default=())


@contextmanager
def written() -> Iterator[list[UUID]]:
    """The ids of the events that tracked models write inside, once they are committed; for `Outbox.wait`."""
    ids: list[UUID] = []
    token = _COLLECTING.set((*_COLLECTING.get(), ids))
    try:
        yield ids
    finally:
        _COLLECTING.reset(token)


def note_written(id: UUID, using: str) -> None:
    for ids in _COLLECTING.get():
        transaction.on_commit(partial(ids.append, id), using=using)
