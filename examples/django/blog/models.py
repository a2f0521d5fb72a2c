"""The models. A comment belongs to the document of its article."""

from __future__ import annotations

from django.db import models


class Article(models.Model):
    title: models.TextField[str, str] = models.TextField()


class Comment(models.Model):
    article: models.ForeignKey[Article, Article] = models.ForeignKey(Article, on_delete=models.CASCADE)
    text: models.TextField[str, str] = models.TextField()
