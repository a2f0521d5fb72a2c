"""Runs the lane starvation: the load and the judges of every nemesis while workers and servers have too little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from labs.collect import write
from labs.history import lines_of
from tests.nemesis.gang import Gang
from tests.nemesis.lanes import STARVATION_DECKS
from tests.nemesis.run import Run
from tests.nemesis.starvation_faults import RECOVERY_SECONDS, STEP_SECONDS, StarvationFaults
from tests.nemesis.starvation_ground import LEASE_SECONDS, StarvationGround, StarvedGang


class StarvationRun(Run):
    DECKS: ClassVar[Mapping[str, Sequence[str]]] = STARVATION_DECKS
    MINUTES_APART: ClassVar[float] = 8
    LONGER_SECONDS: ClassVar[float] = 400.0
    GANG: ClassVar[type[Gang]] = StarvedGang
    ground: StarvationGround
    gang: StarvedGang

    def _ground(self) -> StarvationGround:
        return StarvationGround(self.seed, self.release, self.recipe)

    def _build(self) -> None:
        super()._build()
        faults = StarvationFaults(self.ground, self.gang, self.ledger, self._end)
        self.servers.table |= faults.table
        self.workers.table |= faults.of_workers
        self.notes["lease_seconds"] = LEASE_SECONDS

    def _heal(self) -> None:
        super()._heal()
        self.ground.await_elasticsearch(RECOVERY_SECONDS)

    def _coda(self) -> None:
        """Who was killed for memory is counted by its group (S1), and started again, as its unit would do it."""
        self.gang.revive()
        super()._coda()

    def _leave(self) -> None:
        self.notes["groups"] = self.gang.about()
        super()._leave()
        self._shift_steps()

    def _shift_steps(self) -> None:
        """The database's clock was behind for a while, so that a step may have happened later than it says. What was
        seen after a delete is judged by the latest time that it can have had."""
        path = self.folder / "steps.ndjson"
        steps = [{**row, "at": float(row["at"]) + STEP_SECONDS} for row in lines_of(path)]
        write(path, steps)
