"""What `manage.py check` says about our settings; with `--database` also about the schema."""

import os
from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from outbox.django.conf import alias, environment


def register() -> None:
    checks.register(check_settings, "outbox")
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
