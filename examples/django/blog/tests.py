"""Tests as Django runs them: `python manage.py test`. The settings' TEST_RUNNER makes our tables in their database."""

from __future__ import annotations

from django.db import connection
from django.test import TestCase

from outbox.django import written

from .models import Article, Comment


def refreshed() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("select entity_type || ':' || entity_id from search_outbox_events order by 1")
        return [name for (name,) in cursor.fetchall()]


class ArticleTests(TestCase):
    def test_a_saved_article_is_refreshed(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), written() as ids:
            article = Article.objects.create(title="Night trains")
        assert refreshed() == [f"article:{article.pk}"]
        assert len(ids) == 1


class CommentTests(TestCase):
    def test_a_comment_refreshes_its_article(self) -> None:
        article = Article.objects.create(title="Night trains")
        Comment.objects.create(article=article, text="Bring a pillow")
        assert refreshed() == [f"article:{article.pk}"] * 2


class WaitTests(TestCase):
    def test_a_wait_that_is_no_number_changes_nothing(self) -> None:
        for wait in ("soon", "", "-1", "nan"):
            reply = self.client.post(f"/articles?wait={wait}", {"title": "Maps"}, content_type="application/json")
            assert reply.status_code == 400
        assert Article.objects.count() == 0
