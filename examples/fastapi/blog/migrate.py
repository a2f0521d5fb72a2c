"""Makes the tables, the view that says what the document of an article is, and the triggers on both tables.

In Alembic the last is `op.execute(attach_sql(op.get_bind(), ...))`, with `detach_sql` in the downgrade."""

from sqlalchemy import create_engine, text

from outbox.sqlalchemy import attach_sql

from .database import URL
from .models import Base

VIEW = """
create or replace view search_documents as
select 'article'::text as entity_type,
       a.id as entity_id,
       json_build_object('title', a.title, 'comments',
           (select coalesce(json_agg(c.text order by c.id), '[]') from comments c where c.article_id = a.id))
           as document
  from articles a
"""


def migrate() -> None:
    with create_engine(URL).begin() as connection:
        Base.metadata.create_all(connection)
        connection.execute(text(VIEW))
        connection.execute(attach_sql(connection, "articles", entity_type="article", id="id"))
        connection.execute(attach_sql(connection, "comments", entity_type="article", id="article_id"))


if __name__ == "__main__":
    migrate()
