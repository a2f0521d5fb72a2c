"""Tests as Django runs them: `python manage.py test`. The settings' TEST_RUNNER makes our tables in their database."""

from __future__ import annotations

from django.db import connection
from django.test import TestCase, TransactionTestCase

from .models import Article, Comment


def refreshed() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("delete from search_outbox_events returning entity_type || ':' || entity_id")
        return [name for (name,) in cursor.fetchall()]


class ArticleTests(TestCase):
    def test_a_new_article_is_refreshed(self) -> None:
        article = Article.objects.create(title="Night trains")
        assert refreshed() == [f"article:{article.pk}"]


class CommentTests(TestCase):
    def test_a_comment_refreshes_its_article(self) -> None:
        article = Article.objects.create(title="Night trains")
        Comment.objects.create(article=article, text="Bring a pillow")
        assert refreshed() == [f"article:{article.pk}"] * 2


class CommittedTests(TransactionTestCase):
    """Django empties the tables after it."""

    def test_an_update_refreshes_every_article_that_it_changes(self) -> None:
        Article.objects.bulk_create([Article(title="Night trains"), Article(title="Maps")])
        assert len(refreshed()) == 2
        Article.objects.update(title="Day boats")
        assert len(refreshed()) == 2
