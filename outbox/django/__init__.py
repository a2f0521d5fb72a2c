"""The Django app: `INSTALLED_APPS = [..., "outbox.django"]`. Models that are `Tracked` write refreshes by signals, in
their own transaction; `manage.py outbox ...` runs our commands with Django's settings.

Signals see `save`, `create`, `delete` (also of a queryset, and what a cascade deletes) and changes of many-to-many
fields. They do not see `bulk_create`, `bulk_update`, SQL, and `QuerySet.update`, which related managers use too.
Triggers see all: `outbox attach`.
"""

from outbox.django.conf import get_async_outbox, get_outbox
from outbox.django.tracked import OwnerField, Owners, Tracked, by, written

__all__ = ["OwnerField", "Owners", "Tracked", "by", "get_async_outbox", "get_outbox", "written"]
