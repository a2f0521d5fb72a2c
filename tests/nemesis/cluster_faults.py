"""Owns what is done to the nodes of a search cluster and to their links; each act measures whether it bit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.nemesis.bite import Bite
from tests.nemesis.cluster_ground import ClusterGround
from tests.nemesis.cluster_nodes import NODES
from tests.nemesis.gang import Gang
from tests.nemesis.ground import ELASTIC_DOWN, INDEX
from tests.nemesis.schedule import PlannedAct
from tests.nemesis.waiting import wait

NOTICED_SECONDS = 20.0
SAID = ("sink.paused", "bulk.partial_failure", "sink.node_down", "batch.failed", "node.left_out")


class ClusterFaults:
    def __init__(self, ground: ClusterGround, gang: Gang, stop: threading.Event) -> None:
        self._ground = ground
        self._gang = gang
        self._stop = stop
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "cl_alone": lambda act: self._part(act, lambda: int(act.size * NODES) % NODES, "one node alone"),
            "cl_master": lambda act: self._part(act, self._master, "the master alone"),
            "cl_half": lambda act: self._part(act, self._master, "clients reach only the master's part", only=True),
            "cl_one_way": self._one_way,
            "cl_slow": self._slow,
            "cl_kill": self._kill,
            "cl_disk": self._disk,
        }

    # Around each

    @contextlib.contextmanager
    def _unsure(self) -> Iterator[dict[Any, int]]:
        self._ground.unsure = True
        try:
            yield dict(self._gang.mark())
        finally:
            for link in self._ground.links:
                link.heal()
                link.slow(0.06)
            self._ground.mend()
            green = self._ground.await_green()
            self._ground.unsure = not green

    def _said(self, mark: dict[Any, int]) -> Counter[str]:
        facts = Counter(str(fact.get("event")) for fact in self._gang.since(mark))
        return Counter({name: n for name, n in facts.items() if name.startswith(("sink.", "bulk.", "node."))})

    def _master(self) -> int:
        name = self._ground.master()
        return int(name[1:]) if name else 0

    def _others(self, n: int) -> list[int]:
        return [other for other in range(NODES) if other != n]

    # Partitions

    def _part(self, act: PlannedAct, who: Callable[[], int], told: str, *, only: bool = False) -> Bite:
        n = who()
        before = self._ground.primaries()[f"n{n}"]
        with self._unsure() as mark:
            self._ground.network.part(n, self._others(n))
            if only:
                for other in self._others(n):
                    self._ground.links[other].cut()
            parted = bool(wait(lambda: self._is_apart(n), NOTICED_SECONDS))
            self._stop.wait(2 + 3 * act.size)
            said = self._said(mark)
        numbers = {"primaries": float(before)}
        return Bite(parted, f"{told}: n{n} with {before} primaries, parted: {parted}, {_told(said)}", numbers)

    def _is_apart(self, n: int) -> bool:
        """The others have a master and go on without it."""
        seen = self._ground.seen_by(self._others(n)[0])
        return bool(seen) and f"n{n}" not in seen

    def _one_way(self, act: PlannedAct) -> Bite:
        """It is heard and hears nobody: its replies to what it does not hear never come."""
        n = int(act.size * NODES) % NODES
        with self._unsure() as mark:
            self._ground.network.deafen(n, self._others(n))
            left = bool(wait(lambda: self._is_apart(n), NOTICED_SECONDS))
            self._stop.wait(2 + 3 * act.size)
            said = self._said(mark)
        return Bite(left, f"n{n} hears nobody, the others went on without it: {left}, {_told(said)}")

    def _slow(self, act: PlannedAct) -> Bite:
        n = int(act.size * NODES) % NODES
        with self._unsure() as mark:
            quick = self._write_seconds()
            how = self._ground.network.slow(n, 150, 400)
            began, slow = time.monotonic(), quick
            while time.monotonic() - began < 8 + 4 * act.size and not self._stop.is_set():
                slow = max(slow, self._write_seconds())
            said = self._said(mark)
        told = f"n{n} behind {how}: a write took {slow:.2f} s instead of {quick:.2f}, {_told(said)}"
        return Bite(slow > 2 * quick, told, {"seconds": round(slow, 2)})

    def _write_seconds(self) -> float:
        """Of a document of a shard that has a copy there, as often as not."""
        began = time.monotonic()
        with contextlib.suppress(*ELASTIC_DOWN):
            self._ground.elastic.options(request_timeout=10).indices.refresh(index=INDEX)
        return time.monotonic() - began

    # Deaths

    def _kill(self, act: PlannedAct) -> Bite:
        """kill -9 of the node with the most primaries; replicas are promoted."""
        primaries = self._ground.primaries()
        name, held = primaries.most_common(1)[0]
        with self._unsure() as mark:
            self._ground.cluster.named(name).kill()
            moved = bool(wait(lambda: self._has_moved(name), NOTICED_SECONDS))
            self._stop.wait(1 + 4 * act.size)
            said = self._said(mark)
        told = f"kill -9 of {name} with {held} primaries, replicas promoted: {moved}, {_told(said)}"
        return Bite(moved and held > 0, told, {"primaries": held})

    def _has_moved(self, name: str) -> bool:
        try:
            shards = [one for one in self._ground.shards() if one["prirep"] == "p"]
        except ELASTIC_DOWN:
            return False
        return all(one["state"] == "STARTED" and one["node"] != name for one in shards)

    def _disk(self, act: PlannedAct) -> Bite:
        """Another program fills the disk of the node with the most primaries: every second time to the last byte."""
        name, held = self._ground.primaries().most_common(1)[0]
        share = 1.0 if act.round % 2 == 0 else 0.97
        with self._unsure() as mark:
            with self._ground.cluster.named(name).full(share):
                hurt = bool(wait(lambda: self._is_hurt(name, mark), 30))
                self._stop.wait(2 + 3 * act.size)
            said = self._said(mark)
        told = f"disk of {name} with {held} primaries {share:.0%} full, it hurt: {hurt}, {_told(said)}"
        return Bite(hurt, told, {"primaries": held})

    def _is_hurt(self, name: str, mark: dict[Any, int]) -> bool:
        """A block on the index, a copy that moved or failed, or a worker that noticed."""
        try:
            blocks = self._ground.elastic.indices.get_settings(index=f"{INDEX}-v*", name="index.blocks.*")
            held = self._ground.primaries()[name]
        except ELASTIC_DOWN:
            return True
        return any(dict(one.get("settings", {})) for one in blocks.body.values()) or not held or bool(self._said(mark))


def _told(said: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in said.most_common(3)) or "no worker said anything"
