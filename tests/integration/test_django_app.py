"""`outbox.django`: operations of migrations, the checks, the command and the settings."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import pytest

from outbox.store.attach.attach import attach
from tests.fixtures.attachments import catalogue
from tests.fixtures.django_site import configure, use_database
from tests.fixtures.queue import EventTable
from tests.fixtures.queue import refreshed as told
from tests.fixtures.touched import written

configure()

from django.core.management import call_command  # noqa: E402
from django.db import connection, migrations  # noqa: E402
from django.db.migrations.state import ProjectState  # noqa: E402
from django.test import override_settings  # noqa: E402

from outbox.django.checks import check_settings  # noqa: E402
from outbox.django.operations import Attach  # noqa: E402

TABLES = """
create table authors (id int primary key, name text);
create table articles (id int primary key, author_id int references authors, title text, tenant text);
"""
BY_ID: dict[str, Any] = {"entity_type": "article", "id": "id", "columns": ["title"]}
BY_QUERY: dict[str, Any] = {
    "entity_type": "article",
    "via": " select id from articles where author_id = changed.id and '%s' <> ':x' ",
}


@pytest.fixture
def site(queue: EventTable, database: str) -> Iterator[EventTable]:
    queue.connection.execute(TABLES)
    with use_database(database):
        yield queue


def migration(*operations: Attach) -> migrations.Migration:
    made: type[migrations.Migration] = type("Migration", (migrations.Migration,), {"operations": operations})
    return made("0001", "blog")


def migrate(*operations: Attach, back: bool = False, atomic: bool = True) -> None:
    """As Django's executor does it: in one transaction, and backwards in reverse order."""
    made = migration(*operations)
    with connection.schema_editor(atomic=atomic) as editor:
        (made.unapply if back else made.apply)(ProjectState(), editor)


# Operations of migrations


@pytest.mark.parametrize("atomic", [True, False])
def test_a_migration_attaches_as_the_command_does_and_its_reverse_leaves_nothing(
    site: EventTable, atomic: bool
) -> None:
    before = catalogue(site.connection)
    operations = (Attach("articles", **BY_ID), Attach("authors", **BY_QUERY))
    migrate(*operations, atomic=atomic)
    made = catalogue(site.connection)
    site.connection.execute("insert into authors values (7); insert into articles values (1, 7)")
    site.connection.execute("update articles set tenant = 'x'; update authors set name = 'Ada'")
    assert written(site.connection) == {("article", "1")}
    assert told(site, fanouts=2) == ["article:1"]
    migrate(*operations, back=True, atomic=atomic)
    site.connection.execute("delete from search_outbox_entity_types")
    assert catalogue(site.connection) == before
    attach(site.connection, "articles", entity_type="article", id_column="id", columns=("title",))
    attach(site.connection, "authors", entity_type="article", via=BY_QUERY["via"])
    assert catalogue(site.connection) == made


# Settings, checks, the command


@pytest.mark.parametrize(
    ("given", "id", "what"),
    [
        ({"ELASTIC_INDX": "x"}, "outbox.E002", "ELASTIC_INDX"),
        ({"OUTBOX_BATCH_SIZE": -1}, "outbox.E002", "OUTBOX_BATCH_SIZE"),
        ({"DATABASE": "typo"}, "outbox.E001", "typo"),
    ],
)
def test_wrong_settings_are_named_by_the_check(given: dict[str, Any], id: str, what: str) -> None:
    with override_settings(OUTBOX=given):
        (problem,) = check_settings()
    assert (problem.id, what in problem.msg, bool(problem.hint)) == (id, True, True)


def test_manage_py_runs_our_commands(
    site: EventTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    site.connection.execute("select outbox_refresh('article', '1')")
    call_command("outbox", "status", "--json")
    assert '"pending": 1' in capsys.readouterr().out
    buffer = io.StringIO()
    call_command("outbox", "status", "--json", stdout=buffer)
    assert '"pending": 1' in buffer.getvalue()
    assert "DATABASE_URL" not in os.environ
