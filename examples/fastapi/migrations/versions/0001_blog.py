"""The tables, the view that says what the document of an article is, and the triggers on what it reads."""

import sqlalchemy as sa
from alembic import op

from outbox.sqlalchemy import attach_sql, detach_sql

revision = "0001"
down_revision = None

VIEW = """
create view search_documents as
select 'article'::text as entity_type,
       a.id as entity_id,
       json_build_object('title', a.title, 'comments',
           (select coalesce(json_agg(c.text order by c.id), '[]') from comments c where c.article_id = a.id))
           as document
  from articles a
"""


def upgrade() -> None:
    op.create_table(
        "articles", sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.Text, nullable=False)
    )
    article = sa.ForeignKey("articles.id", ondelete="CASCADE")
    op.create_table(
        "comments",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("article_id", sa.Integer, article, nullable=False, index=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.execute(VIEW)
    op.execute(attach_sql(op.get_bind(), "articles", entity_type="article", id="id"))
    op.execute(attach_sql(op.get_bind(), "comments", entity_type="article", id="article_id"))


def downgrade() -> None:
    op.execute(detach_sql(op.get_bind(), "comments", entity_type="article"))
    op.execute(detach_sql(op.get_bind(), "articles", entity_type="article"))
    op.execute("drop view search_documents")
    op.drop_table("comments")
    op.drop_table("articles")
