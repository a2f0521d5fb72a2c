"""Makes the tables, and the view that says what the document of an article is."""

import asyncio

from sqlalchemy import text

from .database import engine
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


async def make_tables() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(text(VIEW))
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(make_tables())
