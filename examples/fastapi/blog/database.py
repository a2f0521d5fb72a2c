"""The sessions, and which models are tracked: a comment belongs to the document of its article."""

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from outbox.sqlalchemy import by, track

from .models import Article, Comment

engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1))
sessions = async_sessionmaker(engine, expire_on_commit=False)
track(sessions, {Article: "article", Comment: by("article", Comment.article_id)})
