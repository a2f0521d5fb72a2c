"""`outbox.django`: which changes of tracked models are refreshed, the checks, the command and the settings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from outbox.errors import NoTransaction
from tests.fixtures.deployment import ROOT
from tests.fixtures.django_site import blog, configure, drop_connection, use_database
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.processes import clean_environment
from tests.fixtures.queue import EventTable
from tests.fixtures.queue import refreshed as told
from tests.fixtures.waiting import PATIENCE_SECONDS

configure()

from django.apps import apps  # noqa: E402
from django.core import checks  # noqa: E402
from django.core.management import CommandError, ManagementUtility, call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.db.migrations.state import ModelState, ProjectState  # noqa: E402
from django.db.models import F  # noqa: E402
from django.db.models.signals import post_migrate  # noqa: E402
from django.test import override_settings  # noqa: E402

from outbox.django import Tracked, by, get_outbox, written  # noqa: E402
from outbox.django.checks import check_models, check_schema, check_settings  # noqa: E402
from outbox.django.runner import OutboxRunner  # noqa: E402
from tests.fixtures.django_blog.models import (  # noqa: E402
    Article,
    Clip,
    Comment,
    Featured,
    Member,
    Note,
    Paragraph,
    Rack,
    Stand,
    Tag,
    Topic,
)


@pytest.fixture
def site(queue: EventTable, database: str) -> Iterator[EventTable]:
    with blog(database):
        yield queue


def two_articles(queue: EventTable) -> Comment:
    Article.objects.create(id=1)
    Article.objects.create(id=2)
    comment = Comment.objects.create(id=1, article_id=1)
    assert told(queue) == ["article:1", "article:1", "article:2", "comment:1"]
    return comment


def test_saved_and_deleted_objects_are_refreshed(site: EventTable) -> None:
    two_articles(site)
    Article.objects.filter(id=2).get().save()
    assert told(site) == ["article:2"]
    Comment.objects.update_or_create(id=1, defaults={"text": "x"})
    assert told(site) == ["article:1", "comment:1"]
    Article.objects.all().delete()  # and the comment by the cascade
    assert told(site) == ["article:1", "article:1", "article:2", "comment:1"]


def test_a_child_that_moves_refreshes_both_owners(site: EventTable) -> None:
    comment = two_articles(site)
    comment.article_id = 2
    comment.save()
    assert told(site) == ["article:1", "article:2", "comment:1"]
    deferred = Comment.objects.defer("article").get(id=1)
    deferred.article_id = 1
    deferred.save()
    assert told(site) == ["article:1", "article:2", "comment:1"]
    Comment(id=1, article_id=2).save()  # over the row that is there
    assert told(site) == ["article:1", "article:2", "comment:1"]
    comment.article_id = None
    comment.save()
    assert told(site) == ["article:2", "comment:1"]


def test_what_is_stored_counts_and_not_what_the_object_says(site: EventTable) -> None:
    comment = two_articles(site)
    comment.article_id = 2
    comment.save(update_fields=["text"])
    assert told(site) == ["article:1", "comment:1"]
    comment.article_id = F("article_id") + 1  # type: ignore[assignment]
    comment.save()
    assert told(site) == ["article:1", "article:2", "comment:1"]
    fresh = Comment.objects.get(id=1)
    fresh.article_id = 1
    fresh.delete()
    assert told(site) == ["article:2", "comment:1"]


def test_a_child_table_and_a_changed_set_of_tags_count(site: EventTable) -> None:
    featured = Featured.objects.create(id=7, place=1)
    assert told(site) == ["article:7"]
    one, two = Tag.objects.create(name="a"), Tag.objects.create(name="b")
    featured.tags.add(one)
    assert told(site) == ["article:7"]
    article = Article.objects.get(id=7)
    article.tags.add(two)
    assert told(site) == ["article:7"]
    two.article_set.remove(article)  # type: ignore[attr-defined]
    assert told(site) == ["article:7"]
    one.article_set.clear()  # type: ignore[attr-defined]
    assert told(site) == ["article:7"]
    article.tags.set([two])
    assert told(site) == ["article:7"]
    article.tags.clear()
    assert set(told(site)) == {"article:7"}


def test_both_sides_of_a_set_are_refreshed(site: EventTable) -> None:
    two_articles(site)
    topic, other = Topic.objects.create(id=1), Topic.objects.create(id=2)
    assert told(site) == ["topic:1", "topic:2"]
    topic.articles.add(1, 2)
    assert told(site) == ["article:1", "article:2", "topic:1"]
    article = Article.objects.get(id=1)
    article.topics.add(other)  # type: ignore[attr-defined]
    assert told(site) == ["article:1", "topic:2"]
    article.topics.remove(other)  # type: ignore[attr-defined]
    assert told(site) == ["article:1", "topic:2"]
    topic.articles.clear()
    assert told(site) == ["article:1", "article:2", "topic:1"]


def test_an_object_that_is_deleted_refreshes_those_that_were_linked_with_it(site: EventTable) -> None:
    two_articles(site)
    tag, topic = Tag.objects.create(), Topic.objects.create(id=1)
    Article.objects.get(id=1).tags.add(tag)
    topic.articles.add(1, 2)
    told(site)
    Tag.objects.all().delete()  # which is not tracked itself
    assert told(site) == ["article:1"]
    Article.objects.get(id=2).delete()
    assert told(site) == ["article:2", "topic:1"]
    topic.delete()
    assert told(site) == ["article:1", "topic:1"]


def test_a_set_that_is_inherited_counts_once_when_its_object_is_deleted(site: EventTable) -> None:
    featured = Featured.objects.create(id=7)
    Topic.objects.create(id=1).articles.add(featured)
    told(site)
    featured.delete()
    assert told(site) == ["article:7", "topic:1"]


def test_related_managers_are_seen_if_they_save_each_object(site: EventTable) -> None:
    comment = two_articles(site)
    Article.objects.get(id=2).comment_set.add(comment, bulk=False)  # type: ignore[attr-defined]
    assert told(site) == ["article:1", "article:2", "comment:1"]
    Article.objects.get(id=2).comment_set.clear(bulk=False)  # type: ignore[attr-defined]
    assert told(site) == ["article:2", "comment:1"]


def test_a_key_of_several_columns_may_have_the_entity_in_one(site: EventTable) -> None:
    two_articles(site)
    paragraph = Paragraph.objects.create(article_id=1, number=1)
    paragraph.text = "x"
    paragraph.save(update_fields=["text"])
    paragraph.delete()
    assert told(site) == ["article:1"] * 3


def test_routing_is_that_of_before_and_that_of_now(site: EventTable) -> None:
    note = Note.objects.create(tenant="a")
    note.tenant = "b"
    note.save()
    note.delete()
    assert [row.routing for row in site.rows()] == ["a", "a", "b", "b"]


def test_a_routing_that_was_not_saved_is_not_that_of_the_event(site: EventTable) -> None:
    member = Member.objects.create(team=1, tenant="a")
    told(site)
    member.team, member.tenant = 2, "b"
    member.save(update_fields=["team"])
    assert [(row.entity_id, row.routing) for row in site.rows()] == [("1", "a"), ("2", "a")]


def test_a_routing_that_the_database_computes_is_read(site: EventTable) -> None:
    rack = Rack.objects.create(name="A")
    rack.name = "B"
    rack.save()
    assert [row.routing for row in site.rows()] == ["a", "a", "b"]


class TenantKind(str, Enum):  # noqa: UP042 - a StrEnum has the text of its value anyway
    A = "a"


def test_ids_and_routing_have_the_text_of_the_database(site: EventTable) -> None:
    stand = Stand.objects.create(number=Decimal("1.5"), is_open=True)
    stand.delete()
    Note.objects.create(id="07", tenant=TenantKind.A)
    found = [(row.entity_type, row.entity_id, row.routing) for row in site.rows()]
    assert found == [("stand", "1.50", "true"), ("stand", "1.50", "true"), ("note", "7", "a")]


def test_the_row_and_its_event_are_one_transaction(site: EventTable) -> None:
    with transaction.atomic():
        Article.objects.create(id=1)
        assert site.counts() == {}
        transaction.set_rollback(True)
    assert (Article.objects.count(), site.counts()) == (0, {})
    with written() as ids, transaction.atomic():
        Article.objects.create(id=2)
        with transaction.atomic():
            Article.objects.create(id=3)
            transaction.set_rollback(True)  # to the savepoint
        Article.objects.create(id=4)
        assert ids == []
    rows = site.rows()
    assert [row.entity_id for row in rows] == ["2", "4"]
    assert ids == [row.id for row in rows]


def test_a_failed_event_takes_the_row_with_it(site: EventTable) -> None:
    site.connection.execute("drop function outbox_refresh(text, text, text, text)")
    with pytest.raises(Exception, match="outbox_refresh"):
        Article.objects.create(id=1)
    assert Article.objects.count() == 0


def test_a_way_around_save_is_refused_in_autocommit(site: EventTable) -> None:
    with pytest.raises(NoTransaction, match=r"transaction\.atomic\(\)"):
        Article(id=1).save_base()
    assert Article.objects.count() == 0


def test_bulk_statements_are_not_seen(site: EventTable) -> None:
    """As the documents say; triggers see them."""
    Article.objects.bulk_create([Article(id=1)])
    Article.objects.update(title="x")
    Article.objects.bulk_update([Article(id=1, title="y")], ["title"])
    Comment.objects.bulk_create([Comment(id=1)])
    Article.objects.get(id=1).comment_set.set(Comment.objects.all())  # type: ignore[attr-defined]
    assert told(site) == []


def test_what_a_deletion_sets_to_null_is_not_seen(site: EventTable) -> None:
    """As the documents say; triggers see it."""
    two_articles(site)
    Clip.objects.create(article_id=2)
    told(site)
    Article.objects.get(id=2).delete()
    assert told(site) == ["article:2"]
    assert Clip.objects.get().article_id is None  # type: ignore[attr-defined]


def test_models_of_a_migration_are_not_seen(site: EventTable) -> None:
    """As the documents say: they are copies without our base."""
    state = ProjectState()
    state.add_model(ModelState.from_model(Tag))
    state.add_model(ModelState.from_model(Article))
    copy: Any = state.apps.get_model("django_blog", "Article")
    copy.objects.create(id=1)
    assert told(site) == []


def test_two_threads_write_each_its_own(site: EventTable) -> None:
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    failed: list[BaseException] = []

    def produce(first: int) -> None:
        try:
            for id in range(first, first + 6):
                with transaction.atomic():
                    Article.objects.create(id=id)
                    together.wait()
                    transaction.set_rollback(id % 2 == 1)
        except BaseException as error:
            failed.append(error)
            together.abort()
        finally:
            drop_connection()

    threads = [threading.Thread(target=produce, args=(first,)) for first in (10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failed == []
    assert told(site) == [f"article:{id}" for id in (10, 12, 14, 20, 22, 24)]


def test_a_pool_of_transactions_before_postgresql_changes_nothing(
    site: EventTable, database: str, postgres_url: str
) -> None:
    drop_connection()
    with Pgbouncer.temporary(server_url=postgres_url) as pooler, use_database(pooler.before(database)):
        for id in range(8):
            with transaction.atomic():
                Article.objects.create(id=id)
                transaction.set_rollback(id % 2 == 1)
    assert told(site) == ["article:0", "article:2", "article:4", "article:6"]


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


def test_models_that_cannot_work_are_named_by_the_check() -> None:
    class Backwards(models.Model, Tracked):  # type: ignore[misc, metaclass]
        outbox = "article"

        class Meta:
            app_label = "unconnected"

    class Silent(Tracked, models.Model):
        class Meta:
            app_label = "unconnected"

    class Elsewhere(Tracked, models.Model):
        outbox = by("article", "artcle_id")

        class Meta:
            app_label = "unconnected"

    assert checked(Backwards, Silent, Elsewhere, Article) == [
        ("Backwards", "outbox.E003"),
        ("Silent", "outbox.E004"),
        ("Elsewhere", "outbox.E006"),
    ]


def checked(*chosen: type[Any]) -> list[tuple[str, str | None]]:
    class Chosen:
        @staticmethod
        def get_models() -> list[Any]:
            return [*chosen]

    return [(getattr(problem.obj, "__name__", ""), problem.id) for problem in check_models([Chosen])]


def test_fields_that_cannot_be_an_id_are_named_by_the_check() -> None:
    class Pair(Tracked, models.Model):
        outbox = "pair"
        pk = models.CompositePrimaryKey("one", "two")
        one: models.IntegerField[int, int] = models.IntegerField()
        two: models.IntegerField[int, int] = models.IntegerField()

        class Meta:
            app_label = "unconnected"

    class Labelled(Tracked, models.Model):
        outbox = by("labelled", "labels")
        labels: models.ManyToManyField[Any, Any] = models.ManyToManyField("self", related_name="+")

        class Meta:
            app_label = "unconnected"

    class Digest(Tracked, models.Model):
        outbox = by("digest", "pk", routing="sum")
        sum: models.BinaryField[bytes, bytes] = models.BinaryField()

        class Meta:
            app_label = "unconnected"

    wrong = (Pair, Labelled, Digest)
    assert checked(*wrong, Paragraph) == [(model.__name__, "outbox.E008") for model in wrong]


def test_a_database_without_our_tables_is_named_by_the_check(empty_database: str, site: EventTable) -> None:
    assert check_schema(databases=["default"]) == []
    with use_database(empty_database):
        (problem,) = check_schema(databases=["default"])
        assert (problem.id, problem.hint) == ("outbox.W007", "Run `manage.py outbox migrate`.")
        assert check_schema() == []
    registered = checks.registry.registry.get_checks(include_deployment_checks=True)
    assert {check_settings, check_models, check_schema} <= set(registered)


def test_manage_py_runs_our_commands(
    site: EventTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    Article.objects.create(id=1)
    call_command("outbox", "status", "--json")
    assert '"pending": 1' in capsys.readouterr().out
    buffer = io.StringIO()
    call_command("outbox", "status", "--json", stdout=buffer)
    assert '"pending": 1' in buffer.getvalue()
    assert "DATABASE_URL" not in os.environ


@pytest.mark.parametrize(("arguments", "code"), [(["status", "--nonsense"], 2), (["show", "no-uuid"], 2)])
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


def test_a_receiver_of_post_migrate_may_save_tracked_models_in_the_test_database(empty_database: str) -> None:
    def fill(using: str, **_: Any) -> None:
        Article.objects.using(using).create(id=1)

    runner = OutboxRunner(verbosity=0, interactive=False)
    with use_database(empty_database):
        post_migrate.connect(fill, sender=apps.get_app_config("django_blog"))
        try:
            made = runner.setup_databases()
        finally:
            post_migrate.disconnect(fill, sender=apps.get_app_config("django_blog"))
        try:
            assert Article.objects.count() == 1
        finally:
            runner.teardown_databases(made)
    with psycopg.connect(empty_database) as own:
        assert own.execute("select to_regclass('search_outbox_events')").fetchone() == (None,)


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
