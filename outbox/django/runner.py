"""Our tables in Django's test databases: `TEST_RUNNER = "outbox.django.runner.OutboxRunner"`."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_migrate
from django.test.runner import DiscoverRunner

from outbox.django.conf import alias, dsn
from outbox.store.schema.migrate import migrate


def make_tables() -> None:
    """In the database that Django is connected to now, whatever our own variables name: for a test database."""
    migrate(dsn(alias()))


class OutboxRunner(DiscoverRunner):
    def setup_databases(self, **kwargs: Any) -> Any:
        """By a signal: copies for --parallel are made of the test database before this returns."""
        post_migrate.connect(_once)
        try:
            return super().setup_databases(**kwargs)
        finally:
            post_migrate.disconnect(_once)


def _once(using: str, **_: Any) -> None:
    """The signal is sent for each app."""
    if using == alias():
        post_migrate.disconnect(_once)
        make_tables()
