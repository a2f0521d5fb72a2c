"""Owns the world of the lane cluster: PostgreSQL as ever, and three search servers behind a proxy each."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from labs.client import connect
from labs.index import create as create_index
from labs.proxy import Proxy
from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.search_server import EmbeddedSearch
from outbox.embedded.server import remove_abandoned
from tests.nemesis.cluster_nodes import NODES, Cluster, Network
from tests.nemesis.ground import ELASTIC_DOWN, INDEX, NEIGHBOUR, SHARDS, Ground
from tests.nemesis.waiting import wait

GREEN_SECONDS = 240.0


def _rows(reply: Any) -> list[dict[str, str]]:
    """Of one of the `_cat` calls."""
    return [{name: str(value or "") for name, value in one.items()} for one in reply]


class Links:
    """The proxies before all nodes, as one."""

    def __init__(self, links: list[Proxy]) -> None:
        self.links = links

    @property
    def counts(self) -> Counter[str]:
        return sum((link.counts for link in self.links), Counter())

    def urls(self, originals: list[str]) -> list[str]:
        return [link.url(url) for link, url in zip(self.links, originals, strict=True)]

    def __getattr__(self, act: str) -> Callable[..., None]:
        """Whatever is done to one is done to all."""

        def to_all(*told: Any, **named: Any) -> None:
            for link in self.links:
                getattr(link, act)(*told, **named)

        return to_all


class ClusterGround(Ground):
    """`unsure`: a fault is under way, so that a read may say what was true a moment ago."""

    def __enter__(self) -> ClusterGround:
        self.unsure = False
        with contextlib.ExitStack() as undo:
            remove_abandoned(default_data_dir())
            folder = undo.enter_context(temporary_folder(default_data_dir()))
            self.network = undo.enter_context(Network())
            self.cluster = Cluster(folder, self.network, self._release)
            undo.callback(self.cluster.stop)
            self.postgres = self._new_postgres(folder / "postgresql")
            undo.callback(self.postgres.stop)
            self.postgres.start()
            self._make_database()
            self.cluster.start()
            self.elasticsearch = cast(EmbeddedSearch, self.cluster.nodes[0])
            urls = [node.url for node in self.cluster.nodes]
            self.elastic = connect(urls, request_timeout=20, max_retries=2, retry_on_timeout=True)
            undo.callback(self.elastic.close)
            self.await_green(nodes=NODES)
            self._make_indexes()
            self._build_roads(undo)
            self._open = undo.pop_all()
        return self

    def _make_indexes(self) -> None:
        fields = {"kind": "keyword", "notes": "text", "revision": "long", "tags": "keyword"}
        strict = {"properties": {name: {"type": kind} for name, kind in fields.items()}}
        copies = {"number_of_replicas": 1, "unassigned.node_left.delayed_timeout": "1s"}
        create_index(self.elastic, INDEX, {"refresh_interval": "1s", "number_of_shards": SHARDS, **copies}, strict)
        create_index(self.elastic, NEIGHBOUR, copies, {})
        for n in range(20):
            self.elastic.index(index=NEIGHBOUR, id=f"row:{n}", document={"title": f"neighbour {n}"})
        self.await_green(nodes=NODES)

    def _build_roads(self, undo: contextlib.ExitStack) -> None:
        links = []
        for n, node in enumerate(self.cluster.nodes):
            tap = lambda link, data, n=n: self.wire.tap(link * NODES + n, data)  # noqa: E731
            links.append(undo.enter_context(Proxy.to(node.url, f"node-{n}", self._seed, tap=tap)))
        self.elastic_link = cast(Proxy, Links(links))
        self.database_link = undo.enter_context(Proxy.to(self.database_url, "postgresql", self._seed))
        self.pave()

    @property
    def links(self) -> list[Proxy]:
        return cast(Links, self.elastic_link).links

    def road(self) -> dict[str, str]:
        urls = cast(Links, self.elastic_link).urls([node.url for node in self.cluster.nodes])
        return {
            "DATABASE_URL": self.database_link.url(self.database_url),
            "ELASTIC_URL": ",".join(urls),
            "ELASTIC_INDEX": INDEX,
        }

    def uuids(self) -> dict[str, str]:
        """Names of the index and of those beside it, by what their folders are called."""
        return {
            one["uuid"]: one["index"] for one in _rows(self.elastic.cat.indices(index=f"{INDEX}-v*", format="json"))
        }

    # What the cluster says

    def at(self, place: int) -> Any:
        """A client of one node alone, for a moment."""
        return contextlib.closing(
            connect(self.cluster.nodes[place].url, request_timeout=3, max_retries=0, retry_on_timeout=False)
        )

    def master(self, asked: int | None = None) -> str | None:
        """By the node that is asked, or by whoever answers."""
        try:
            if asked is None:
                return _rows(self.elastic.cat.master(format="json"))[0]["node"]
            with self.at(asked) as client:
                return _rows(client.cat.master(format="json"))[0]["node"]
        except (*ELASTIC_DOWN, IndexError, KeyError):
            return None

    def seen_by(self, place: int) -> set[str]:
        """The nodes that this one counts as members; empty without a master."""
        try:
            with self.at(place) as client:
                return {one["name"] for one in _rows(client.cat.nodes(format="json", h="name"))}
        except ELASTIC_DOWN:
            return set()

    def shards(self) -> list[dict[str, str]]:
        """Copies of the index's shards: shard, prirep, state, node."""
        return _rows(self.elastic.cat.shards(index=f"{INDEX}-v*", format="json"))

    def primaries(self) -> Counter[str]:
        return Counter(str(one["node"]) for one in self.shards() if one["prirep"] == "p" and one["node"])

    def is_green(self, nodes: int = NODES) -> bool:
        try:
            health = self.elastic.options(request_timeout=10).cluster.health(timeout="1s")
        except ELASTIC_DOWN:
            return False
        return bool(health["status"] == "green" and health["number_of_nodes"] == nodes)

    def await_green(self, nodes: int = NODES) -> bool:
        """What gave up after several failures is tried again."""

        def look() -> bool:
            if self.is_green(nodes):
                return True
            with contextlib.suppress(*ELASTIC_DOWN):
                self.elastic.options(request_timeout=5).cluster.reroute(retry_failed=True)
            return False

        return bool(wait(look, GREEN_SECONDS))

    def mend(self) -> None:
        """Every node runs and hears the others."""
        self.network.heal()
        for node in self.cluster.nodes:
            if not node.running:
                node.start()

    def start_elasticsearch(self) -> None:
        self.mend()
        self.await_green()

    def node_folder(self, place: int) -> Path:
        return self.cluster.nodes[place].folder
