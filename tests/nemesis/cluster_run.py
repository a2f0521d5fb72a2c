"""Runs the lane cluster: the load and the judges of every nemesis over three search servers that are parted, slowed,
killed and filled; at last a copy that lagged is promoted by hand, and what that lost must be found."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from outbox.embedded.search_server import EmbeddedSearch
from tests.nemesis import gaps
from tests.nemesis.cluster_faults import ClusterFaults
from tests.nemesis.cluster_ground import ClusterGround
from tests.nemesis.ground import ELASTIC_DOWN
from tests.nemesis.lanes import CLUSTER_DECKS
from tests.nemesis.run import Run
from tests.nemesis.waiting import wait
from tests.nemesis.watch import Watch

ALONE_SECONDS = 6.0  # that a primary takes writes which the other copy never gets


class SureWatch(Watch):
    """Reads nothing while a fault is under way: a node that is cut off may answer what was true a moment ago."""

    def _documents(self) -> dict[str, Any] | None:
        if not self._is_sure():
            return None
        known = self._versions, self._before
        line = super()._documents()
        if self._is_sure():
            return line
        self._versions, self._before = known  # what is not written down is not known either
        return None

    def _is_sure(self) -> bool:
        return not getattr(self._ground, "unsure", False)


class ClusterRun(Run):
    DECKS: ClassVar[Mapping[str, Sequence[str]]] = CLUSTER_DECKS
    MINUTES_APART: ClassVar[float] = 8
    LONGER_SECONDS: ClassVar[float] = 400.0
    WATCH: ClassVar[type[Watch]] = SureWatch
    ground: ClusterGround

    def _ground(self) -> ClusterGround:
        self.say("three nodes in namespaces of their own: two minutes")
        return ClusterGround(self.seed, self.release, self.recipe)

    def _build(self) -> None:
        super()._build()
        self.servers.table |= ClusterFaults(self.ground, self.gang, self._end).table

    def _heal(self) -> None:
        self.ground.mend()
        super()._heal()
        if not self.ground.await_green():
            self.problems.append("the cluster is not green after it was healed")

    def _drain(self) -> None:
        super()._drain()
        self.notes["before"] = sorted(gaps.differing(self.ground))[:200]
        self.ground.unsure = True  # from now on copies may be old ones
        written = self._promote_stale()
        mending = gaps.Gaps(self.ground, self.people, self.ledger, self._await_empty, self.say)
        self.notes["gaps"] = {**mending.find_and_mend([], by_linked=True), "written": written}
        self.ground.elastic_lives += 1

    def _promote_stale(self) -> int:
        """A node with one copy of each of some shards is down, the other copies take writes alone and die, and the old
        copies are promoted by the command that says that it loses data. Answers how many commits were written."""
        self.say("a copy that lagged is promoted")
        ground = self.ground
        ground.elastic.cluster.put_settings(persistent={"cluster.routing.allocation.enable": "primaries"})
        away = max(ground.primaries())
        ground.cluster.named(away).kill()
        wait(lambda: self._all_led(away), 60)
        before = self.ledger.committed
        self.producer.start()
        time.sleep(ALONE_SECONDS)
        self.producer.stop()
        self._await_empty()
        written = self.ledger.committed - before
        others = [node for node in ground.cluster.nodes if node.name != away]
        stale = self._copies_at(away)
        for node in others:
            node.kill()
        # A master needs two of three nodes: they come back with all but the newer copies.
        ground.cluster.named(away).start()
        for node in others:
            self._forget(node, stale)
            node.start()
        wait(lambda: ground.master() is not None, 120)
        self.notes["stale_promoted"] = self._accept_loss(stale, away)
        ground.elastic.cluster.put_settings(persistent={"cluster.routing.allocation.enable": None})
        if not ground.await_green():
            self.problems.append("the cluster is not green after a copy was promoted")
        return written

    def _all_led(self, without: str) -> bool:
        try:
            shards = [one for one in self.ground.shards() if one["prirep"] == "p"]
        except ELASTIC_DOWN:
            return False
        return all(one["state"] == "STARTED" and one["node"] != without for one in shards)

    def _copies_at(self, name: str) -> set[tuple[str, int]]:
        """Uuid of the index and number of the shard, by its disk: it is down."""
        self._uuids = self.ground.uuids()
        return {(path.parent.name, int(path.name)) for path in _shards_of(self.ground.cluster.named(name), self._uuids)}

    def _forget(self, node: EmbeddedSearch, stale: Collection[tuple[str, int]]) -> None:
        for path in _shards_of(node, self._uuids):
            if (path.parent.name, int(path.name)) in stale:
                shutil.rmtree(path)

    def _accept_loss(self, stale: Collection[tuple[str, int]], name: str) -> int:
        promoted = 0
        for uuid, shard in stale:
            what = {"index": self._uuids[uuid], "shard": shard, "node": name, "accept_data_loss": True}
            with contextlib.suppress(*ELASTIC_DOWN):
                self.ground.elastic.cluster.reroute(commands=[{"allocate_stale_primary": what}])
                promoted += 1
        return promoted


def _shards_of(node: EmbeddedSearch, uuids: Collection[str]) -> list[Path]:
    """The folders of these indexes' shards on its disk."""
    places = (node.folder / "data").glob("**/indices/*/*")
    return [path for path in places if path.parent.name in uuids and path.name.isdigit()]
