"""The view that says what the document of an article is, and the triggers on what it reads."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from outbox.django.operations import Attach

VIEW = """
create view search_documents as
select 'article'::text as entity_type,
       a.id as entity_id,
       json_build_object('title', a.title, 'comments',
           (select coalesce(json_agg(c.text order by c.id), '[]') from blog_comment c where c.article_id = a.id))
           as document
  from blog_article a
"""


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("blog", "0001_initial")]
    operations: ClassVar[list[Operation]] = [
        migrations.RunSQL(VIEW, reverse_sql="drop view search_documents"),
        Attach("blog_article", entity_type="article", id="id"),
        Attach("blog_comment", entity_type="article", id="article_id"),
    ]
