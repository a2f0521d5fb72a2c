"""Owns the two servers of a nemesis, its database, its index and the connections to them. It harms nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, LiteralString

import psutil
import psycopg
from elasticsearch import ApiError, TransportError
from psycopg import sql
from psycopg.rows import dict_row

from labs.client import connect, server_of
from labs.collect import STEPS
from labs.index import create as create_index
from labs.proxy import Proxy
from outbox.embedded import EmbeddedPostgres
from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.process import await_end
from outbox.embedded.search_server import EmbeddedSearch
from outbox.embedded.server import remove_abandoned
from outbox.embedded.stack import search_server
from outbox.policy.entity_type import EntityType, KeptBy, Versions
from outbox.store.attach.attach import attach
from outbox.store.entity_types import declare
from outbox.store.schema.migrate import migrate
from tests.fixtures.guide_table import CREATE as GUIDE_TABLE
from tests.nemesis.parts import PARTS, view
from tests.nemesis.recipe import ADOPTABLE, Recipe, fixed
from tests.nemesis.schedule import KINDS
from tests.nemesis.wire import Wire

SCHEMA = Path(__file__).with_name("schema.sql")
INDEX = "nemesis"
NEIGHBOUR = "neighbour"
# Where a document lives depends on its routing only where there are several.
SHARDS = 3
# One thread and a queue of twenty (a request has a part for each shard): a few more requests at once are refused with
# 429, by the real server. And a limit of two megabytes, so that a document that is too large need not be a hundred.
TINY = {"thread_pool.write.size": 1, "thread_pool.write.queue_size": 20, "http.max_content_length": "2mb"}
PATIENCE_SECONDS = 600.0  # a start takes 12 s alone, and minutes where others have the machine
DATABASE_DOWN = (psycopg.OperationalError, psycopg.InterfaceError)
ELASTIC_DOWN = (ApiError, TransportError)


def make_tables(connection: psycopg.Connection[Any], recipe: Recipe | None = None) -> None:
    """What every run has, and the parts of this one."""
    recipe = recipe or fixed()
    connection.execute(recipe.ids.sql(SCHEMA.read_text(encoding="utf-8")).encode())
    if recipe.has("producer-versions"):
        declare(connection, {kind: EntityType(KeptBy.PAYLOAD, Versions.PRODUCER) for kind in KINDS}, "nemesis")
    if recipe.has("drafts"):
        declare(connection, {"draft": EntityType(KeptBy.PAYLOAD)}, "nemesis")
    if not recipe.has("late-view"):
        make_parts(connection, recipe)


def make_parts(connection: psycopg.Connection[Any], recipe: Recipe) -> None:
    """Their tables, the view over them, and what is attached."""
    if not recipe.parts:
        return
    connection.execute(recipe.ids.function)
    for name in recipe.parts:
        connection.execute(recipe.ids.sql(PARTS[name].tables))
    connection.execute(view(recipe.parts))
    # In the function itself: a copy by logical replication asks before any table of ours would be there.
    attached = sorted({kind for name in recipe.parts for _, kind, _ in PARTS[name].attached})
    function = "create or replace function is_attached(text) returns boolean immutable return $1 = any ({}::text[])"
    connection.execute(sql.SQL(function).format(sql.Literal(attached)))
    for name in recipe.parts:
        for table, kind, way in PARTS[name].attached:
            attach(connection, table, entity_type=kind, **way)


class Ground:
    """`with Ground(seed, release, recipe) as ground:`. Reads go past the proxies; workers and people go through them.

    What is called Elasticsearch here is OpenSearch if the release is one of it."""

    POSTGRES: ClassVar[Mapping[str, str]] = {}
    WITH_LOG: ClassVar[bool] = False

    def __init__(self, seed: int, release: str, recipe: Recipe) -> None:
        self._seed = seed
        self.recipe = recipe
        self._release = release
        self._open = contextlib.ExitStack()
        self.wire = Wire()
        self._between_kills = threading.Lock()
        self.elastic_lives = 0  # grows each time Elasticsearch ends: what it had not synced may be gone then

    def __enter__(self) -> Ground:
        with contextlib.ExitStack() as undo:
            folder = self._place(undo)
            self.elasticsearch = self._new_search(folder / "elasticsearch")
            self.elasticsearch.ready_seconds = PATIENCE_SECONDS
            undo.callback(self.elasticsearch.stop)
            self.elasticsearch.launch()
            self.postgres = self._new_postgres(folder / "postgresql")
            undo.callback(self.postgres.stop)
            self.postgres.start()
            self._make_database()
            self.elasticsearch.await_ready()
            self.elastic = connect(self.elasticsearch.url, request_timeout=60, max_retries=0)
            undo.callback(self.elastic.close)
            self._make_indexes()
            self._build_roads(undo)
            self._add_servers(undo, folder)
            self._open = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _place(self, undo: contextlib.ExitStack) -> Path:
        """Where the servers have their data."""
        remove_abandoned(default_data_dir())
        return undo.enter_context(temporary_folder(default_data_dir()))

    def _new_postgres(self, folder: Path) -> EmbeddedPostgres:
        return EmbeddedPostgres(folder, settings=self.POSTGRES)

    def _new_search(self, folder: Path) -> EmbeddedSearch:
        return search_server(self._release)(folder, version=self._release, settings=TINY)

    def _make_database(self) -> None:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute("create database nemesis")
        self.database_url = self.postgres.database_url("nemesis")
        if self.recipe.has("adopted"):
            with psycopg.connect(self.database_url, autocommit=True) as connection:
                column = ADOPTABLE.get(self.recipe.ids.type, "text")
                connection.execute(GUIDE_TABLE.replace("entity_id              uuid", f"entity_id {column}"))
        migrate(self.database_url, log=self.WITH_LOG, by_entity=True)
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(STEPS.read_bytes())
            make_tables(connection, self.recipe)
            # A neighbour's table and index on the same servers: nobody may touch them (I17).
            connection.execute("create table neighbour as select g as n from generate_series(1, 100) g")

    def _add_servers(self, undo: contextlib.ExitStack, folder: Path) -> None:
        """None beside these two."""

    def _make_indexes(self) -> None:
        fields = {"kind": "keyword", "notes": "text", "revision": "long", "tags": "keyword"}
        strict = {"properties": {name: {"type": kind} for name, kind in fields.items()}}
        create_index(self.elastic, INDEX, {"refresh_interval": "1s", "number_of_shards": SHARDS}, strict)
        create_index(self.elastic, NEIGHBOUR, {}, {})
        for n in range(20):
            self.elastic.index(index=NEIGHBOUR, id=f"row:{n}", document={"title": f"neighbour {n}"})

    def _build_roads(self, undo: contextlib.ExitStack) -> None:
        self.elastic_link = Proxy.to(self.elasticsearch.url, "elasticsearch", self._seed, tap=self.wire.tap)
        self.database_link = Proxy.to(self.database_url, "postgresql", self._seed)
        for link in (self.elastic_link, self.database_link):
            undo.enter_context(link)
        self.pave()

    def pave(self) -> None:
        """Everything passes again."""
        self.database_link.heal()
        self.pave_elastic()

    def pave_elastic(self) -> None:
        """A little slowly, so that whoever reads finds batches in flight."""
        self.elastic_link.heal()
        self.elastic_link.slow(0.06)

    def road(self) -> dict[str, str]:
        """Addresses through the proxies."""
        return {
            "DATABASE_URL": self.database_link.url(self.database_url),
            "ELASTIC_URL": self.elastic_link.url(self.elasticsearch.url),
            "ELASTIC_INDEX": INDEX,
        }

    # Reading

    @contextlib.contextmanager
    def connect(self, **more: Any) -> Iterator[psycopg.Connection[Any]]:
        """As the product reads views: in UTC."""
        more = {"options": "-c TimeZone=UTC", **more}
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=10, **more) as connection:
            yield connection

    def rows(self, query: LiteralString, values: Any = ()) -> list[Any]:
        with self.connect() as connection:
            return connection.execute(query, values).fetchall()

    def value(self, query: LiteralString, values: Any = ()) -> Any:
        rows = self.rows(query, values)
        return rows[0][0] if rows else None

    def dicts(self, query: LiteralString, values: Any = ()) -> Iterator[dict[str, Any]]:
        with self.connect(row_factory=dict_row) as connection:
            yield from connection.execute(query, values)

    def leases_of(self, worker: str, pid: int) -> list[tuple[str, int]]:
        """Token and rows of each batch that this very process holds now."""
        query: LiteralString = (
            "select l.token::text, cardinality(l.ids) from search_outbox_leases l"
            "  join search_outbox_workers w on w.worker_id = l.owner and w.start_id = l.start_id"
            " where l.owner = %s and w.pid = %s"
        )
        return [(str(token), int(n)) for token, n in self.rows(query, [worker, pid])]

    def open_events(self) -> int:
        return int(self.value("select count(*) from search_outbox_events where processed_at is null"))

    def elastic_answers(self) -> bool:
        try:
            return bool(self.elastic.options(request_timeout=5).exists(index=NEIGHBOUR, id="row:1"))
        except ELASTIC_DOWN:
            return False

    def refuse_malformed(self, refuse: bool) -> None:
        """Whether a document whose revision is no number is refused; in every index behind and beside the alias.

        What was accepted is flushed before a kill may come: Elasticsearch reads its log again with the mapping of that
        day, and what that refuses it leaves out (tests/integration/test_elasticsearch_recovery.py)."""
        properties = {"revision": {"type": "long", "ignore_malformed": not refuse}}
        with self._between_kills:
            self.elastic.indices.put_mapping(index=f"{INDEX}-v*", properties=properties)
            if refuse:
                self.elastic.indices.flush(index=f"{INDEX}-v*", force=True, wait_if_ongoing=True)

    def versions(self) -> dict[str, str]:
        found = {"postgresql": str(self.value("show server_version"))}
        server = server_of(self.elastic)
        return {**found, server.product.value: server.number}

    # Stopping and starting

    def stop_postgres(self, how: str) -> None:
        """`fast` ends sessions in good order; `immediate` is PostgreSQL's name for a crash."""
        if how == "immediate":
            file = self.postgres.folder / "data" / "postmaster.pid"
            postmaster = psutil.Process(int(file.read_text().split()[0]))
            os.kill(postmaster.pid, signal.SIGQUIT)
            await_end([postmaster], 10)
        self.postgres.stop()

    def end_elasticsearch(self, *, kill: bool) -> None:
        with self._between_kills:
            self.elastic_lives += 1
            (self.elasticsearch.kill if kill else self.elasticsearch.stop)()

    def start_elasticsearch(self) -> None:
        self.elasticsearch.start()
        self.await_elasticsearch(60)

    def await_elasticsearch(self, seconds: float) -> None:
        """Until it has a master, and every shard its primary."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:  # it answers before the shard does
            with contextlib.suppress(*ELASTIC_DOWN):
                self.elastic.cluster.health(index=INDEX, wait_for_status="yellow", timeout="5s")
                return
            time.sleep(0.1)

    def neighbour(self) -> str:
        """All that the neighbour has, as one text."""
        self.elastic.indices.refresh(index=NEIGHBOUR)
        hits = self.elastic.search(index=NEIGHBOUR, size=1000, version=True, sort=["_doc"])["hits"]["hits"]
        documents = sorted((hit["_id"], hit["_version"], json.dumps(hit["_source"])) for hit in hits)
        rows = self.value("select md5(string_agg(n::text, ',' order by n)) from neighbour")
        return f"{rows} {documents}"
