"""`outbox.django` among other transactions, other receivers and other models: no change is left without its event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
import pytest

from tests.fixtures.django_site import blog, configure, drop_connection
from tests.fixtures.queue import EventTable
from tests.fixtures.queue import refreshed as told
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

configure()

from django.core.exceptions import ValidationError  # noqa: E402
from django.db import transaction  # noqa: E402
from django.db.models.signals import post_save, pre_save  # noqa: E402
from django.db.transaction import TransactionManagementError  # noqa: E402

from outbox.django import written  # noqa: E402
from outbox.errors import OutboxError  # noqa: E402
from tests.fixtures.django_blog.models import (  # noqa: E402
    Answer,
    Article,
    Book,
    Comment,
    Couple,
    Credit,
    Draft,
    Featured,
    Guestbook,
    Special,
    Tag,
    Topic,
    Visit,
    Writer,
)


@pytest.fixture
def site(queue: EventTable, database: str) -> Iterator[EventTable]:
    with blog(database):
        yield queue


@contextmanager
def told_by(queue: EventTable, work: Callable[[], object]) -> Iterator[list[str]]:
    """What `work` refreshes, which waits in another thread for the transaction of this one."""
    found: list[str] = []
    ids: list[Any] = []

    def run() -> None:
        try:
            with written() as these:
                work()
            ids.extend(these)
        finally:
            drop_connection()

    def waits() -> bool:
        locks = "select exists (select from pg_locks where not granted)"
        return bool(queue.connection.execute(locks).fetchone()[0])  # type: ignore[index]

    thread = threading.Thread(target=run)
    with transaction.atomic():
        yield found
        thread.start()
        eventually(waits)
    thread.join(PATIENCE_SECONDS)
    found.extend(sorted(f"{row.entity_type}:{row.entity_id}" for row in queue.rows() if row.id in ids))


def move(model: type[Comment], article: int) -> None:
    comment = model._base_manager.get(id=1)
    comment.article_id = article
    comment.save()


@pytest.mark.parametrize("model", [Comment, Answer])
def test_a_move_that_is_not_committed_yet_is_waited_for(site: EventTable, model: type[Comment]) -> None:
    for id in (1, 2, 3):
        Article.objects.create(id=id)
    model._base_manager.create(id=1, article_id=1)
    with told_by(site, lambda: move(model, 3)) as found:
        move(model, 2)
    assert found == ["article:2", "article:3", "comment:1"]


@pytest.mark.parametrize(
    "delete",
    [
        lambda: Comment.objects.get(id=1).delete(),
        lambda: Comment.objects.filter(text="").delete(),
        lambda: Article.objects.get(id=1).delete(),
    ],
    ids=["an object", "a queryset", "a cascade"],
)
def test_what_is_deleted_is_where_another_transaction_moved_it(site: EventTable, delete: Callable[[], object]) -> None:
    for id in (1, 2):
        Article.objects.create(id=id)
    Comment.objects.create(id=1, article_id=1)
    with told_by(site, delete) as found:
        move(Comment, 2)
    assert [name for name in found if name != "article:1"] == ["article:2", "comment:1"]


def test_the_set_of_an_object_that_moves_is_refreshed_where_it_is(site: EventTable) -> None:
    for id in (1, 2):
        Article.objects.create(id=id)
    comment = Comment.objects.create(id=1, article_id=1)
    tag = Tag.objects.create()
    with told_by(site, lambda: comment.tags.add(tag)) as found:
        move(Comment, 2)
    assert found == ["article:2", "comment:1"]


def test_a_base_manager_whose_rows_cannot_be_locked_does_not_disturb(site: EventTable) -> None:
    Article.objects.create(id=1)
    couple = Couple.objects.create()
    told(site)
    couple.left_id = 1  # type: ignore[attr-defined]
    couple.save()
    couple.delete()
    assert told(site) == ["article:1", "article:1"]


# Tables that inherit


def test_a_child_with_its_own_document_refreshes_its_parents_too(site: EventTable) -> None:
    special = Special.objects.create(id=7)
    assert told(site) == ["article:7", "special:7"]
    special.save(update_fields=["place"])
    assert told(site) == ["article:7", "special:7"]
    special.tags.add(Tag.objects.create())
    assert told(site) == ["article:7", "special:7"]
    special.delete()
    assert told(site) == ["article:7", "special:7"]


def test_a_deleted_child_counts_once_and_its_parent_if_it_stays(site: EventTable) -> None:
    for kind, own in ((Featured, []), (Special, ["special:7"])):
        kind._base_manager.create(id=7)
        told(site)
        kind._base_manager.get(id=7).delete(keep_parents=True)
        assert told(site) == ["article:7", *own]
        Article.objects.get(id=7).delete()
        assert told(site) == ["article:7"]
        kind._base_manager.create(id=7)
        told(site)
        Article.objects.filter(id=7).delete()
        assert told(site) == ["article:7", *own]


def test_a_proxy_with_its_own_document_refreshes_its_models_too(site: EventTable) -> None:
    draft = Draft.objects.create(id=7)
    assert told(site) == ["article:7", "draft:7"]
    draft.save()
    assert told(site) == ["article:7", "draft:7"]
    draft.delete()
    assert told(site) == ["article:7", "draft:7"]


def test_an_owner_in_the_parents_table_is_read_there(site: EventTable) -> None:
    for id in (1, 2):
        Article.objects.create(id=id)
    answer = Answer.objects.create(id=1, article_id=1)
    told(site)
    answer.article_id = 2
    answer.save(update_fields=["place"])
    assert told(site) == ["article:1", "comment:1"]
    answer.save()
    assert told(site) == ["article:1", "article:2", "comment:1"]
    Answer(pk=1, article_id=1).save()  # over the row that is there
    assert told(site) == ["article:1", "article:2", "comment:1"]
    Answer.objects.get(pk=1).delete()
    assert told(site) == ["article:1", "comment:1"]


# Many-to-many fields that share a table


def test_fields_through_one_table_are_refreshed_each_once(site: EventTable) -> None:
    book, topic = Book.objects.create(id=1), Topic.objects.create(id=1)
    author, editor = Writer.objects.create(id=5), Writer.objects.create(id=6)
    told(site)
    book.authors.add(author)
    assert told(site) == ["book:1", "writer:5"]
    editor.edited.add(book)  # type: ignore[attr-defined]
    assert told(site) == ["book:1", "writer:6"]
    book.topics.add(topic)
    assert told(site) == ["book:1", "topic:1"]
    topic.books.clear()  # type: ignore[attr-defined]
    assert told(site) == ["book:1", "topic:1"]


def test_a_field_that_is_cleared_takes_the_rows_of_the_others_with_it(site: EventTable) -> None:
    """As Django does: it deletes all rows of the book."""
    book = Book.objects.create(id=1)
    book.authors.add(Writer.objects.create(id=5))
    book.editors.add(Writer.objects.create(id=6))
    book.topics.add(Topic.objects.create(id=1))
    told(site)
    book.authors.clear()
    assert Credit.objects.count() == 0
    assert told(site) == ["book:1", "topic:1", "writer:5", "writer:6"]


def test_a_tracked_row_between_others_is_seen_when_a_cascade_deletes_it(site: EventTable) -> None:
    """As the documents advise for rows with further foreign keys."""
    host, guest = Writer.objects.create(id=5), Writer.objects.create(id=6)
    book = Guestbook.objects.create(id=1)
    Visit.objects.create(guestbook=book, guest=guest, host=host)
    told(site)
    host.delete()
    assert told(site) == ["guestbook:1", "writer:5", "writer:6"]
    book.guests.add(guest)
    assert told(site) == ["guestbook:1", "writer:6"]


# Other receivers


@contextmanager
def received(signal: Any, sender: Any, receiver: Callable[..., None], *, first: bool = False) -> Iterator[None]:
    signal.connect(receiver, sender=sender)
    if first:  # as if it had been connected before our app was ready
        signal.receivers.insert(0, signal.receivers.pop())
        signal.sender_receivers_cache.clear()
    try:
        yield
    finally:
        signal.disconnect(receiver, sender=sender)


def refuse(instance: Any, **_: Any) -> None:
    raise ValidationError("no")


def test_what_fails_before_the_row_is_written_can_be_caught_inside_of_a_transaction(site: EventTable) -> None:
    with transaction.atomic():
        with received(pre_save, Article, refuse), pytest.raises(ValidationError):
            Article.objects.create(id=1)
        with pytest.raises(ValueError, match="unsaved related object"):
            Comment(article=Article()).save()
        Article.objects.create(id=2)
    assert told(site) == ["article:2"]


def test_a_row_without_its_event_cannot_be_committed(site: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    Article.objects.create(id=1, title="a")
    told(site)

    def attempt() -> None:
        with transaction.atomic():
            with pytest.raises((ValidationError, OutboxError)):
                Article.objects.filter(id=1).get().save()
            Article.objects.count()

    with received(post_save, Article, refuse, first=True), pytest.raises(TransactionManagementError):
        attempt()
    with monkeypatch.context() as patch:
        patch.setattr("outbox.django.signals.call.refresh", lambda *_, **__: refuse(None))
        with pytest.raises(TransactionManagementError):
            attempt()
    assert told(site) == []
    with received(post_save, Article, refuse):  # after ours
        attempt()
    assert told(site) == ["article:1"]


def test_a_receiver_that_saves_the_object_again_hides_no_move(site: EventTable) -> None:
    for id in (1, 2):
        Article.objects.create(id=id)
    Comment.objects.create(id=1, article_id=1)
    told(site)

    def again(instance: Comment, **_: Any) -> None:
        if instance.text != "again":
            instance.text = "again"
            instance.save()

    with received(post_save, Comment, again, first=True):
        move(Comment, 2)
    assert set(told(site)) == {"article:1", "article:2", "comment:1"}


def test_written_inside_of_written_hides_nothing(site: EventTable) -> None:
    with written() as outer:
        Article.objects.create(id=1)
        with written() as inner:
            Article.objects.create(id=2)
        Article.objects.create(id=3)
    ids = [row.id for row in site.rows()]
    assert (outer, inner) == (ids, ids[1:2])


@pytest.mark.skipif(django.VERSION >= (6,), reason="it takes no positional arguments any more")
def test_the_database_of_a_save_may_be_the_third_argument(site: EventTable) -> None:
    with pytest.warns(DeprecationWarning, match="positional"):
        Article(id=1).save(False, False, "default")
    assert told(site) == ["article:1"]
