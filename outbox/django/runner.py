"""Our tables in Django's test databases: `TEST_RUNNER = "outbox.django.runner.OutboxRunner"`, or `make_tables`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import connections
from django.db.models.signals import pre_migrate
from django.test.runner import DiscoverRunner

from outbox.django.conf import alias, dsn
from outbox.store.schema.migrate import migrate

# `TransactionTestCase` empties its tables by TRUNCATE, which attached tables refuse.
_MAY_TRUNCATE: Final = (
    "create or replace function search_outbox_refuse_truncate() returns trigger"
    " language plpgsql as 'begin return null; end'"
)


@contextmanager
def make_tables() -> Iterator[None]:
    """In the test database that Django migrates inside, whatever database our own variables name. They come before its
    migrations, which attach tables; --parallel copies the test database afterwards."""
    pre_migrate.connect(_once)
    try:
        yield
    finally:
        pre_migrate.disconnect(_once)


class OutboxRunner(DiscoverRunner):
    def setup_databases(self, **kwargs: Any) -> Any:
        with make_tables():
            return super().setup_databases(**kwargs)


def _once(using: str, **_: Any) -> None:
    """The signal is sent for each app."""
    if using == alias():
        pre_migrate.disconnect(_once)
        migrate(dsn(alias()))
        with connections[using].cursor() as cursor:
            cursor.execute(_MAY_TRUNCATE)
