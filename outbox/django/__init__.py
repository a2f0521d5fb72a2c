"""The Django app: `INSTALLED_APPS = [..., "outbox.django"]`. Migrations install triggers (`outbox.django.operations`),
which write an event for every change of a table; `manage.py outbox ...` runs our commands with Django's settings."""

from outbox.django.conf import get_async_outbox, get_outbox

__all__ = ["get_async_outbox", "get_outbox"]
