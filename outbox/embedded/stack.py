"""Owns the servers that `outbox up` starts if none are given. It creates no table, no index and no topic."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from outbox.embedded.connect import EmbeddedConnect
from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.fetching import Report, to_stderr
from outbox.embedded.folders import FOR_SERVERS, check_space, default_data_dir, stack_folder, temporary_folder
from outbox.embedded.java_server import QUICK_START
from outbox.embedded.kafka import EmbeddedKafka
from outbox.embedded.opensearch import EmbeddedOpenSearch
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.products import ELASTICSEARCH, release_of
from outbox.embedded.search import EmbeddedSearch
from outbox.embedded.server import EmbeddedServer, remove_abandoned

_Server = TypeVar("_Server", bound=EmbeddedServer)
_SEARCH: tuple[type[EmbeddedSearch], ...] = (EmbeddedElasticsearch, EmbeddedOpenSearch)


def search_server(version: str) -> type[EmbeddedSearch]:
    """The class for a release by its name, such as `8` or `opensearch-3`."""
    product = release_of(version).product
    return next(kind for kind in _SEARCH if kind.product == product)


class EmbeddedStream(NamedTuple):
    """Kafka, and Kafka Connect, which writes there what it reads from PostgreSQL."""

    kafka: EmbeddedKafka
    connect: EmbeddedConnect


class EmbeddedStack:
    """PostgreSQL and Elasticsearch or OpenSearch, each started only if no address is given, and on demand Kafka.

    The next start uses the same data. A second stack at the same time gets its own folder and data. When this
    process dies, even by kill -9, all servers stop.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        database_url: str | None = None,
        elastic_url: str | None = None,
        es_version: str = "8",
        es_home: Path | None = None,
        es_heap: str = "512m",
        es_jvm_options: Sequence[str] = QUICK_START,
        pg_settings: Mapping[str, str] | None = None,
        with_kafka: bool = False,
        temporary: bool = False,
        report: Report = to_stderr,
    ) -> None:
        self.data_dir = (data_dir or default_data_dir()).expanduser().resolve()
        self._given_database_url = database_url
        self._given_elastic_url = elastic_url
        self._es_version = es_version
        self._es: dict[str, Any] = {"home": es_home, "heap": es_heap, "jvm_options": es_jvm_options}
        self._pg_settings = {**({"wal_level": "logical"} if with_kafka else {}), **(pg_settings or {})}
        self._with_kafka = with_kafka
        self._report = report
        self._temporary = temporary
        self._open = ExitStack()
        self.postgres: EmbeddedPostgres | None = None
        self.elasticsearch: EmbeddedSearch | None = None
        self.stream: EmbeddedStream | None = None

    @property
    def database_url(self) -> str:
        if self._given_database_url:
            return self._given_database_url
        assert self.postgres is not None, "the stack was not started"
        return self.postgres.url

    @property
    def elastic_url(self) -> str:
        if self._given_elastic_url:
            return self._given_elastic_url
        assert self.elasticsearch is not None, "the stack was not started"
        return self.elasticsearch.url

    def start(self) -> Self:
        # A used folder has its programs and files already: it only must be writable.
        check_space(self.data_dir, 0 if (self.data_dir / "stacks").exists() else FOR_SERVERS, "the embedded servers")
        with ExitStack() as undo:
            remove_abandoned(self.data_dir)
            place = temporary_folder(self.data_dir) if self._temporary else stack_folder(self.data_dir, self._kept)
            self._start_in(undo.enter_context(place), undo)
            self._open = undo.pop_all()
        return self

    @property
    def _kept(self) -> str:
        """OpenSearch has databases of its own, one per major version: an event that is done is in one index only.

        And so has Kafka: what is written for it, nobody reads without it.
        """
        chosen = release_of(self._es_version)
        name = "kept" if chosen.product == ELASTICSEARCH else f"{chosen.product.name}-{chosen.major}"
        return f"{name}-kafka" if self._with_kafka else name

    def _start_in(self, folder: Path, undo: ExitStack) -> None:
        # Elasticsearch takes ten times as long, so it starts first and the others start meanwhile.
        common: dict[str, Any] = {"data_dir": self.data_dir, "report": self._report}
        if not self._given_elastic_url:
            kind = search_server(self._es_version)
            es = kind(folder / kind.product.name, version=self._es_version, **self._es, **common)
            self.elasticsearch = _launched(es, undo)
        kafka = _launched(EmbeddedKafka(folder / "kafka", **common), undo) if self._with_kafka else None
        if not self._given_database_url:
            postgres = EmbeddedPostgres(folder / "postgresql", settings=self._pg_settings, data_dir=self.data_dir)
            self.postgres = _launched(postgres, undo)
            self.postgres.await_ready()
        if kafka is not None:
            # Started last, it is stopped first: it reads from PostgreSQL and writes to Kafka.
            kafka.await_ready()
            secret = secrets.token_urlsafe(18)
            connect = EmbeddedConnect(folder / "connect", bootstrap=kafka.url, password=secret, **common)
            self.stream = EmbeddedStream(kafka, _launched(connect, undo))
        if self.elasticsearch:
            self.elasticsearch.await_ready()
        if self.stream is not None:
            self.stream.connect.await_ready()

    def stop(self) -> None:
        """Stop the started servers in reverse order; given ones are not touched."""
        self._open.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _launched(server: _Server, undo: ExitStack) -> _Server:
    undo.callback(server.stop)
    server.launch()
    return server
