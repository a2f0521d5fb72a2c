"""`outbox.django`: operations of migrations, the checks, the command and the settings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox.store.attach.attach import NotAttached, attach
from tests.fixtures.attachments import catalogue
from tests.fixtures.deployment import ROOT
from tests.fixtures.django_site import configure, use_database
from tests.fixtures.processes import clean_environment
from tests.fixtures.queue import EventTable
from tests.fixtures.queue import refreshed as told
from tests.fixtures.touched import written

configure()

from django.core import checks  # noqa: E402
from django.core.management import CommandError, ManagementUtility, call_command  # noqa: E402
from django.db import connection, migrations  # noqa: E402
from django.db.migrations.state import ProjectState  # noqa: E402
from django.db.migrations.writer import MigrationWriter  # noqa: E402
from django.test import override_settings  # noqa: E402

from outbox.django import get_outbox  # noqa: E402
from outbox.django.checks import check_schema, check_settings  # noqa: E402
from outbox.django.operations import Attach, Detach  # noqa: E402

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


def test_a_detach_takes_one_way_away_and_its_reverse_attaches_it_again(site: EventTable) -> None:
    migrate(Attach("articles", **BY_ID), Attach("articles", entity_type="article", id="author_id"))
    both = catalogue(site.connection)
    gone = Detach("articles", **BY_ID)
    migrate(gone)
    site.connection.execute("insert into authors values (7); insert into articles values (1, 7)")
    assert told(site) == ["article:7"]
    migrate(gone, back=True)
    assert catalogue(site.connection) == both
    migrate(gone)
    with pytest.raises(NotAttached, match="articles as article by id"):
        migrate(gone)


def test_django_can_write_an_operation_into_a_file(site: EventTable) -> None:
    """As `squashmigrations` does."""
    made = migration(Attach("articles", **BY_ID), Detach("authors", **BY_QUERY))
    written: dict[str, Any] = {}
    exec(MigrationWriter(made).as_string(), written)
    read = written["Migration"].operations
    for one, other in zip(read, (Attach("articles", **BY_ID), Detach("authors", **BY_QUERY)), strict=True):
        assert (type(one), one.table, one.way, one.more) == (type(other), other.table, other.way, other.more)
    assert [each.describe() for each in read] == ["Attach articles: article", "Detach authors: article"]


# Settings, checks, the command


def test_the_settings_are_djangos(site: EventTable, database: str) -> None:
    with get_outbox() as outbox:
        assert outbox.failed() == []
    assert check_settings() == []
    with override_settings(
        OUTBOX={"ELASTIC_INDEX": "articles", "ELASTIC_INDEX_MAP": {"a": "b"}, "OUTBOX_LISTEN": True}
    ):
        assert check_settings() == []


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


def test_a_database_without_our_tables_is_named_by_the_check(empty_database: str, site: EventTable) -> None:
    assert check_schema(databases=["default"]) == []
    with use_database(empty_database):
        (problem,) = check_schema(databases=["default"])
        assert (problem.id, problem.hint) == ("outbox.W007", "Run `manage.py outbox migrate`.")
        assert check_schema() == []
    registered = checks.registry.registry.get_checks(include_deployment_checks=True)
    assert {check_settings, check_schema} <= set(registered)


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


@pytest.mark.parametrize(("arguments", "code"), [(["show", "no-uuid"], 2)])
def test_a_command_that_fails_has_its_exit_code(
    arguments: list[str], code: int, site: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    with pytest.raises(CommandError, match=f"failed with the exit code {code}") as failed:
        call_command("outbox", *arguments)
    assert failed.value.returncode == code
    with pytest.raises(SystemExit) as left:
        ManagementUtility(["manage.py", "outbox", *arguments]).execute()
    assert left.value.code == code


def test_djangos_test_databases_get_our_tables_and_its_own_database_none(empty_database: str) -> None:
    """The example's tests, as its reader runs them: in a copy of the test database for each process."""
    found = conninfo_to_dict(empty_database)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    environment = {f"DATABASE_{name}": str(found[key]) for name, key in names.items()}
    # A variable that names another database is not asked.
    environment |= {"PYTHONPATH": str(ROOT), "OUTBOX_DIRECT_DATABASE_URL": empty_database}
    done = subprocess.run(
        [sys.executable, "manage.py", "test", "--noinput", "--parallel", "2"],
        cwd=ROOT / "examples" / "django",
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "Ran 3 tests" in done.stderr) == (0, True), f"{done.stdout}\n{done.stderr}"
    with psycopg.connect(empty_database) as own:
        assert own.execute("select count(*) from pg_class where relname like 'search_outbox%'").fetchone() == (0,)


def test_a_migrate_from_python_goes_to_the_database_that_django_is_connected_to(
    empty_database: str, site: EventTable
) -> None:
    """As in a test database, whose name Django writes into the connection."""
    name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(conninfo_to_dict(empty_database)["dbname"])
    try:
        assert [problem.id for problem in check_schema(databases=["default"])] == ["outbox.W007"]
        call_command("outbox", "migrate")
        assert check_schema(databases=["default"]) == []
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
