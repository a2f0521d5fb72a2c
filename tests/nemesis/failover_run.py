"""Runs the lane failover: the load and the judges of every nemesis while PostgreSQL fails over and comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import ClassVar, LiteralString

from tests.nemesis import gaps
from tests.nemesis.bite import Bite
from tests.nemesis.failover_faults import FailoverFaults
from tests.nemesis.failover_ground import FailoverGround
from tests.nemesis.failover_load import HeldProducer
from tests.nemesis.lanes import FAILOVER_DECKS
from tests.nemesis.run import Run
from tests.nemesis.schedule import PlannedAct

LAST_SECONDS = 4.0
RENUMBERED: LiteralString = "select event_id::text, was, now from renumbered"


class FailoverRun(Run):
    DECKS: ClassVar[Mapping[str, Sequence[str]]] = FAILOVER_DECKS
    MINUTES_APART: ClassVar[float] = 5
    LONGER_SECONDS: ClassVar[float] = 300.0
    ground: FailoverGround

    def _ground(self) -> FailoverGround:
        return FailoverGround(self.seed, self.release, self.recipe)

    def _build(self) -> None:
        super()._build()
        self.producer = producer = HeldProducer(self.ground, self.ledger, self.seed, self.rate, self.recipe)
        self.failover = FailoverFaults(self.ground, self.gang, self.ledger, producer, self._end)
        self.servers.table |= self.failover.table

    def _act(self, act: PlannedAct) -> tuple[str, Bite]:
        newcomer = act.lane == "people" or act.kind in self.workers.table
        with self.failover.starts if newcomer else nullcontext():
            return super()._act(act)

    def _drain(self) -> None:
        super()._drain()
        self.notes["last_lost"] = self._lose_what_is_done()
        mending = gaps.Gaps(self.ground, self.people, self.ledger, self._await_empty, self.say)
        lost = self.failover.withdrawn.values()
        self.notes["gaps"] = mending.find_and_mend(lost, by_linked=bool(lost))

    def _lose_what_is_done(self) -> int:
        """A last promotion loses commits whose documents are in the index, and no load covers that up."""
        self.say("a last promotion loses what is done")
        ground = self.ground
        ground.await_replica()
        ground.streams[ground.primary].cut()
        since = time.time()
        self.producer.start()
        time.sleep(LAST_SECONDS)
        self.producer.stop()
        self._await_empty()
        lost, old = self.failover.promote(since)
        ground.rebuild(old)
        ground.await_replica()
        self._await_empty()
        return lost

    def _leave(self) -> None:
        super()._leave()
        self._rewrite_ledger()

    def _rewrite_ledger(self) -> None:
        """A commit that a promotion lost did not happen, as one without an answer; a version is what it became."""
        now = {id: int(version) for id, _, version in self.ground.rows(RENUMBERED)}
        known = self.ground.known()
        self.notes["renumbered"] = len(now)
        with (self.folder / "ledger.ndjson").open("w", encoding="utf-8") as file:
            for entry in self.ledger.entries:
                lost = entry.id in self.failover.withdrawn and entry.id not in known
                told = replace(entry, committed=entry.committed and not lost, version=now.get(entry.id, entry.version))
                file.write(json.dumps(asdict(told)) + "\n")
