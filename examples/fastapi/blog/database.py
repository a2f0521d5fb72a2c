"""The engine and the sessions."""

import os

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

URL = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
engine = create_async_engine(URL)
sessions = async_sessionmaker(engine, expire_on_commit=False)
