"""Owns what an experiment acts on: database, index, daemons and links, and how to restore them. It evaluates
nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from elasticsearch import Elasticsearch

from labs import index, snapshots
from labs.cluster import cluster_of
from labs.collect import STEPS
from labs.crew import Crew
from labs.errors import NotHere
from labs.experiment import SETTINGS, Experiment
from labs.ledger import Ledger, LedgerEntry, newest
from labs.producing import EVENTS, LOG, TABLE, Producer
from labs.proxy import Proxy
from labs.recorder import Recorder
from labs.secured import secured_elasticsearch
from labs.servers import Servers
from labs.streamed import StreamServers, stream_servers
from labs.table import Table
from outbox.embedded import EmbeddedSearch
from outbox.policy.product import Product

R = TypeVar("R", bound="Closing")


class Closing(Protocol):
    def close(self) -> None: ...


class Stage(Crew):
    """Everything made here is undone by `close`, in reverse; `heal` undoes the faults alone."""

    table: Table
    elastic_link: Proxy  # the proxy between all daemons and Elasticsearch
    database_link: Proxy
    ledger: Ledger
    producer: Producer
    recorder: Recorder

    def __init__(
        self, experiment: Experiment, servers: Servers, folder: Path, *, name: str, seed: int, code: Path | None = None
    ) -> None:
        super().__init__(servers, folder, code)
        self.experiment = experiment
        self.seed = seed
        self.database = name.replace("-", "_")
        self.copy = f"lab_copy_{self.database[-6:]}"  # of its database, if an experiment makes one
        self.index = name
        self.elastic_url = servers.elastic_url
        self.elastic: Elasticsearch = servers.elastic  # without the proxies
        self.links: dict[str, Proxy] = {}
        self.nodes: Sequence[EmbeddedSearch] = ()  # of a cluster of its own
        self.stream: StreamServers | None = None  # Kafka and what belongs to it
        self._secrets: Path | None = None
        self._resources: dict[str, Any] = {}
        self._undo = ExitStack()
        self._faults = ExitStack()

    # Opening and closing

    def start_servers(self) -> None:
        """What only this experiment needs, and what takes long to start."""
        release, product = self.servers.release, self.servers.server.product
        if self.experiment.only_elasticsearch and product is not Product.ELASTICSEARCH:
            raise NotHere(f"not on {product.shown}: {self.experiment.only_elasticsearch}")
        if self.experiment.secured:
            self.elastic_url, self.elastic = self._undo.enter_context(secured_elasticsearch(release))
        if self.experiment.nodes > 1:
            self.nodes, self.elastic = self._undo.enter_context(cluster_of(self.experiment.nodes, release))
            self.elastic_url = self.nodes[0].url
        if self.experiment.kafka:
            self.stream = self._undo.enter_context(stream_servers())

    def open(self) -> None:
        experiment = self.experiment
        if self.stream is not None:
            database_url = self.stream.open()
        else:
            self._undo.callback(self.servers.drop_database, self.database)
            database_url = self.servers.create_database(self.database)
        index.create(self.elastic, self.index, experiment.index_settings, experiment.mapping)
        self._undo.callback(self._drop_index)
        self._open_running(database_url)

    def _open_running(self, database_url: str) -> None:
        self.elastic_link = self._start_link(Proxy.to(self.elastic_url, "elasticsearch", self.seed))
        self.database_link = self._start_link(Proxy.to(database_url, "postgresql", self.seed))
        self.ledger = Ledger(self.folder / "ledger.ndjson")
        self._undo.callback(self.ledger.close)
        self.table = Table(database_url, self.ledger)
        with self.table.connect() as connection:
            connection.execute(STEPS.read_bytes())
            connection.execute(TABLE)
        into = EVENTS if self.stream is None else LOG
        self.producer = Producer(database_url, self.experiment.load, self.ledger, self.seed, into)
        self.recorder = self._new_recorder(database_url)
        self._undo.callback(self.recorder.stop)
        self.recorder.start()

    def _drop_index(self) -> None:
        if self.index not in self.servers.kept:
            index.drop(self.elastic, self.index)

    def link(self, name: str) -> Proxy:
        """The proxy to Elasticsearch: one for all, or one per daemon."""
        wanted = name if self.experiment.links_apart else "elasticsearch"
        return self.links.get(wanted) or self._start_link(Proxy.to(self.elastic_url, wanted, self.seed))

    def _start_link(self, link: Proxy) -> Proxy:
        link.start()
        self.links[link.name] = link
        self._undo.callback(link.stop)
        self._faults.callback(link.heal)
        return link

    def _new_recorder(self, database_url: str) -> Recorder:
        return Recorder(
            self.folder,
            database_url,
            self.elastic,
            self.index,
            lambda: list(self.workers.values()),
            self.ledger,
            self.story.now,
            is_stream=self.stream is not None,
        )

    def close(self, *, keep: bool = False) -> None:
        """Stop everything of this lab and, unless `keep`, remove everything of it from the servers."""
        for worker in self.workers.values():
            worker.kill()
        if keep:
            self.servers.keep(self.database, self.index)
        self._undo.close()

    def undo_later(self, act: Callable[[], object]) -> None:
        """Register what undoes a fault; `heal` calls it, also if the lab is interrupted."""
        self._faults.callback(act)

    def heal(self) -> None:
        """End all faults: links pass, frozen daemons continue, stopped servers run, settings are restored."""
        for worker in self.workers.values():
            worker.thaw()
        try:
            self.servers.revive()
        finally:
            self._faults.close()

    def check(self) -> None:
        super().check()
        if self.stream is not None:
            self.stream.check()

    # Queries

    def not_projected(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Documents whose newest commit among these is not in the index yet, nor a later one. Only with Kafka, where no
        row says it."""
        if self.stream is None:
            return []
        wanted = newest(entry for entry in entries if entry.committed)
        if not wanted:
            return []
        deleted = newest(entry for entry in self.ledger.entries if entry.committed and entry.op == "delete")
        docs = self.elastic.mget(index=self.index, ids=list(wanted), source=False)["docs"]
        there = {doc["_id"]: doc["_version"] for doc in docs if doc.get("found")}

        def is_projected(entry: LedgerEntry) -> bool:
            if entry.document not in there:
                return entry.document in deleted and deleted[entry.document].version >= entry.version
            return bool(there[entry.document] >= entry.version + (entry.op == "delete"))

        return [entry for entry in wanted.values() if not is_projected(entry)]

    def snapshot(self, moment: str) -> None:
        with self.table.connect() as connection:
            self.story.snapshots[moment] = {"t": round(self.story.now(), 1), **snapshots.take(connection)}

    def idle(self) -> None:
        """No load and no open event, so that the next event is claimed at once. `producer.resume` ends it."""
        self.producer.pause()
        self.wait_until(self.is_quiet, "an idle moment")

    def is_quiet(self) -> bool:
        open_ = self.table.count("processed_at is null and failed_at is null")
        return open_ == 0 and not self.not_projected(self.ledger.entries)

    # Elasticsearch

    def elasticsearch_away(self) -> None:
        """Stops an embedded Elasticsearch, cuts off a given one. `heal` undoes it."""
        self.elastic_link.cut()
        if self.servers.has_own_elasticsearch:
            self.servers.expect_down("elasticsearch")
            self.servers.elasticsearch().stop()
        how = "stopped" if self.servers.has_own_elasticsearch else "cut off"
        self.note("away_by", how)
        self.mark(f"{self.servers.server.product.shown} {how}", "fault")

    @property
    def real_index(self) -> str:
        """The index behind the alias."""
        return f"{self.index}-v1"

    def resource(self, name: str, make: Callable[[], R]) -> R:
        """Something that the experiment needs, created once and closed with the lab."""
        if name not in self._resources:
            made = make()
            self._resources[name] = made
            self._undo.callback(made.close)
        found: R = self._resources[name]
        return found

    def secret_file(self, name: str) -> Path:
        """A folder outside the report for what must not be kept; removed with the lab."""
        if self._secrets is None:
            self._secrets = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="outbox-lab-")))
        return self._secrets / name

    # Environment

    def settings(self, **more: str) -> dict[str, str]:
        """The environment of the lab's daemons and commands."""
        direct = self.table.database_url
        return {
            **SETTINGS,
            "DATABASE_URL": self.database_link.url(direct) if self.experiment.database_link else direct,
            "ELASTIC_URL": self.address("elasticsearch"),
            "ELASTIC_INDEX": self.index,
            **(self.stream.settings() if self.stream else {}),
            **self.experiment.settings,
            **self.experiment.own_settings(self),
            **more,
        }

    def address(self, worker: str) -> str:
        if self.nodes:
            return ",".join(node.url for node in self.nodes)
        return self.link(worker).url(self.elastic_url)
