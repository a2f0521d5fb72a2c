"""What `manage.py check` says about tracked models and our settings; with `--database` also about the schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import connections, router
from django.db.models import BinaryField, Model

from outbox.django.conf import alias, environment
from outbox.django.keys import fields_of
from outbox.django.tracked import OwnerField, Tracked, declared_by, owners_of


def register() -> None:
    checks.register(check_settings, "outbox")
    checks.register(check_models, checks.Tags.models)
    checks.register(check_schema, checks.Tags.database)


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    from outbox.config import load_settings  # noqa: PLC0415
    from outbox.errors import ConfigurationError  # noqa: PLC0415

    try:
        load_settings(environ={**os.environ, **environment()})  # as `manage.py outbox` has them
    except ImproperlyConfigured as wrong:
        hint = "Name another of DATABASES: OUTBOX = {'DATABASE': 'name'}."
        return [checks.Error(str(wrong), hint=hint, id="outbox.E001")]
    except ConfigurationError as wrong:
        return [
            checks.Error(f"OUTBOX: {each.variable} {each.what}", hint=each.remedy, id="outbox.E002")
            for each in wrong.problems
        ]
    return []


def check_models(app_configs: Sequence[Any] | None = None, **_: Any) -> list[checks.CheckMessage]:
    chosen = [model for config in app_configs for model in config.get_models()] if app_configs else apps.get_models()
    return [problem for model in chosen if issubclass(model, Tracked) for problem in _model(model)]


def _model(model: type[Any]) -> Iterator[checks.CheckMessage]:
    bases = model.__mro__
    if bases.index(Tracked) > bases.index(Model):
        hint = f"Write class {model.__name__}(Tracked, models.Model)."
        yield checks.Error("Tracked must come before models.Model", hint=hint, obj=model, id="outbox.E003")
    if not owners_of(model):
        hint = 'Set outbox = "article", or outbox = by("article", "article_id").'
        yield checks.Error("a Tracked model must say whose documents change", hint=hint, obj=model, id="outbox.E004")
    for owner in declared_by(model):
        yield from _owner(model, owner)
    if router.db_for_write(model) != alias():
        hint = (
            "Its events must be in the same database: name it in OUTBOX = {'DATABASE': ...}, or attach triggers there."
        )
        yield checks.Warning("is written to another database than the outbox's", hint=hint, obj=model, id="outbox.W005")


def _owner(model: type[Any], owner: OwnerField) -> Iterator[checks.CheckMessage]:
    try:
        fields = fields_of(model, owner)
    except FieldDoesNotExist:
        hint = "Name the field of the key, such as 'article' or 'article_id'."
        what = f"{owner} names a field that it does not have"
        yield checks.Error(what, hint=hint, obj=model, id="outbox.E006")
        return
    for what in filter(None, map(_unfit, fields)):
        hint = "Name a field that is one column with a text or a number."
        yield checks.Error(f"{owner}: an id or routing {what}", hint=hint, obj=model, id="outbox.E008")


def _unfit(field: Any) -> str | None:
    if isinstance(field, BinaryField):
        return f"cannot be bytes, as {field.name!r} is"
    # A composite key and another model's relation have no column. Of a many-to-many field Django says that it has one.
    if field.many_to_many or getattr(field, "column", None) is None:
        return f"must be one column, and {field.name!r} is none"
    return None


def check_schema(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    using = alias()
    if using not in (databases or ()):
        return []
    with connections[using].cursor() as cursor:
        cursor.execute("select to_regproc('outbox_refresh') is not null")
        (there,) = cursor.fetchone()
    if there:
        return []
    # No error: `manage.py migrate` runs these checks before it makes the tables that ours may refer to.
    return [checks.Warning("the outbox has no tables here", hint="Run `manage.py outbox migrate`.", id="outbox.W007")]
