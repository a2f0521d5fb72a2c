"""The models. A comment belongs to the document of its article."""

from __future__ import annotations

from django.db import models

from outbox.django import Tracked, by


class Article(Tracked, models.Model):
    outbox = "article"

    title: models.TextField[str, str] = models.TextField()


class Comment(Tracked, models.Model):
    outbox = by("article", "article_id")

    article: models.ForeignKey[Article, Article] = models.ForeignKey(Article, on_delete=models.CASCADE)
    text: models.TextField[str, str] = models.TextField()
