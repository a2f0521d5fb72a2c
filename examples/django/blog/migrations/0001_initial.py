"""The tables, and the view that says what the document of an article is."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

VIEW = """
create view search_documents as
select 'article'::text as entity_type,
       a.id as entity_id,
       json_build_object('title', a.title, 'comments',
           (select coalesce(json_agg(c.text order by c.id), '[]') from blog_comment c where c.article_id = a.id))
           as document
  from blog_article a
"""
KEY: models.BigAutoField[int, int] = models.BigAutoField(
    auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
)


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Operation]] = [
        migrations.CreateModel(name="Article", fields=[("id", KEY.clone()), ("title", models.TextField())]),
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", KEY.clone()),
                ("text", models.TextField()),
                ("article", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="blog.article")),
            ],
        ),
        migrations.RunSQL(VIEW, reverse_sql="drop view search_documents"),
    ]
