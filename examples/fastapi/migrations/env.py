"""Runs the migrations on the service's own database, in one transaction."""

import os

from alembic import context
from sqlalchemy import create_engine

URL = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
with create_engine(URL).begin() as connection:
    context.configure(connection=connection)
    context.run_migrations()
