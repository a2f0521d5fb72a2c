"""Owns the servers of the labs, embedded or given, and new databases and indexes on them. Injects no faults."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

import psycopg
from elasticsearch import ApiError, Elasticsearch, TransportError
from psycopg import sql

from labs.client import connect, server_of
from labs.errors import NotHere, ServerDied, StackUnusable
from outbox.embedded import EmbeddedStack
from outbox.embedded.products import release_of
from outbox.embedded.server import EmbeddedServer
from outbox.errors import OutboxError
from outbox.policy.product import Server
from outbox.store.schema.migrate import migrate


class Servers:
    """Started with `with`. Embedded servers may be stopped, killed and reconfigured; given ones may not."""

    def __init__(
        self,
        database_url: str | None = None,
        elastic_url: str | None = None,
        *,
        release: str = "elasticsearch",
        say: Callable[[str], None] = print,
    ) -> None:
        self._stack = EmbeddedStack(
            database_url=database_url, elastic_url=elastic_url, es_version=release, temporary=True, report=say
        )
        self.release = release  # of embedded search servers
        self.given = bool(database_url), bool(elastic_url)
        self._say = say
        self._down: set[str] = set()
        self.template = f"lab_template_{uuid.uuid4().hex[:6]}"
        self._template_made = False
        self.kept: set[str] = set()  # databases and indexes that stay after their lab
        self._client: Elasticsearch | None = None

    def __enter__(self) -> Self:
        if not all(self.given):
            title = release_of(self.release).product.title
            self._say(f"starting PostgreSQL and {title}: about 30 s, longer the first time")
        try:
            self._stack.start()
        except OutboxError as error:
            raise StackUnusable(error.message) from error
        try:
            self._reach()
        except BaseException:
            self._stack.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self._drop_template()
        if self._client is not None:
            self._client.close()
        self._stack.stop()

    @property
    def database_url(self) -> str:
        return self._stack.database_url.replace("postgresql+psycopg://", "postgresql://", 1)

    @property
    def elastic_url(self) -> str:
        return self._stack.elastic_url

    @property
    def elastic(self) -> Elasticsearch:
        """A client without proxies, for queries and settings. It never retries."""
        if self._client is None:
            self._client = connect(self.elastic_url, request_timeout=20, max_retries=0, retry_on_timeout=False)
        return self._client

    def _reach(self) -> None:
        try:
            with psycopg.connect(self.database_url, connect_timeout=5) as connection:
                allowed = connection.execute(
                    "select rolsuper or rolcreatedb from pg_roles where rolname = current_user"
                ).fetchone()
            self.server: Server = server_of(self.elastic)
            if self.given[1]:
                self.release = self.server.product.value  # a lab with servers of its own has the same product
        except psycopg.OperationalError as away:
            raise StackUnusable(f"PostgreSQL does not answer: {str(away).splitlines()[0]}") from None
        except (ApiError, TransportError) as away:
            raise StackUnusable(f"Elasticsearch does not answer at {self.elastic_url}: {type(away).__name__}") from None
        if not allowed or not allowed[0]:
            raise StackUnusable("labs create their own databases: the given user needs CREATEDB")

    def versions(self) -> dict[str, str]:
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute("show server_version").fetchone()
        return {"postgresql": str(row[0]) if row else "?", self.server.product.value: self.server.number}

    # Permissions

    def require_own(self, what: str) -> None:
        """For faults that affect more than a lab's own database and index."""
        if any(self.given):
            raise NotHere(f"it {what}, but these servers were given")

    def postgres(self) -> EmbeddedServer:
        if self._stack.postgres is None:
            raise NotHere("it stops PostgreSQL, which works only with the embedded one")
        return self._stack.postgres

    def elasticsearch(self) -> EmbeddedServer:
        if self._stack.elasticsearch is None:
            raise NotHere("it stops Elasticsearch, which works only with the embedded one")
        return self._stack.elasticsearch

    @property
    def has_own_elasticsearch(self) -> bool:
        return self._stack.elasticsearch is not None

    def expect_down(self, name: str) -> None:
        """An experiment stops this server: its end is expected until `revive`."""
        self._down.add(name)

    def revive(self) -> None:
        """Start everything that does not run."""
        for server in (self._stack.postgres, self._stack.elasticsearch):
            if server is not None:
                server.thaw()
                if not server.running:
                    server.start()
        self._down.clear()

    def check(self) -> None:
        """Raise if a server ended that no experiment stopped."""
        named = {"postgresql": self._stack.postgres, "elasticsearch": self._stack.elasticsearch}
        for name, server in named.items():
            if server is not None and name not in self._down and not server.running:
                raise ServerDied(f"{server.title} exited unexpectedly during the lab; see {server.log}")

    # Databases and indexes

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _migrated(self) -> str:
        """One database is migrated, all others are copies of it: 40 ms instead of 1 s."""
        if not self._template_made:
            self._template_made = True  # first, so that a half-created one is dropped too
            self._admin(sql.SQL("create database {}").format(sql.Identifier(self.template)))
            migrate(with_database(self.database_url, self.template))
        return self.template

    def _drop_template(self) -> None:
        if self._template_made:
            self.drop_database(self.template)

    def create_database(self, name: str) -> str:
        template = sql.Identifier(self._migrated())
        self._admin(sql.SQL("create database {} template {}").format(sql.Identifier(name), template))
        return with_database(self.database_url, name)

    def copy_database(self, name: str, copy: str) -> None:
        """A cold copy: all sessions are terminated first, and new ones are allowed again afterwards."""
        mine, its = sql.Identifier(name), sql.Identifier(copy)
        self._admin(sql.SQL("alter database {} allow_connections false").format(mine))
        try:
            away = sql.SQL("select pg_terminate_backend(pid) from pg_stat_activity where datname = {}")
            self._admin(away.format(sql.Literal(name)))
            self._admin(sql.SQL("create database {} template {}").format(its, mine))
        finally:
            self._admin(sql.SQL("alter database {} allow_connections true").format(mine))

    def put_back(self, name: str, copy: str) -> None:
        """The copy replaces the database, which is dropped."""
        self.drop_database(name)
        self._admin(sql.SQL("alter database {} rename to {}").format(sql.Identifier(copy), sql.Identifier(name)))

    def keep(self, *names: str) -> None:
        self.kept |= set(names)

    def drop_database(self, name: str) -> None:
        if name in self.kept:
            return
        # force: the backend of a killed daemon may not have noticed yet that its client is gone.
        self._admin(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
