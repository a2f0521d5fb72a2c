"""Owns what is done to workers: kill -9, SIGSTOP past the lease, SIGTERM, another clock. Each measures its bite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from labs.faketime import library, skewed
from labs.worker import ROOT
from tests.nemesis.bite import Bite
from tests.nemesis.gang import LEASE_SECONDS, Gang, Hand, Slot
from tests.nemesis.ground import DATABASE_DOWN, Ground
from tests.nemesis.schedule import PlannedAct
from tests.nemesis.waiting import wait

FREEZE_SECONDS = 2 * LEASE_SECONDS
CATCH_SECONDS = 7.0
SHIFT_SECONDS = 40.0  # until a new worker has claimed something
TAKEN = """
select count(*) from recorded_steps
 where old_token = any (%s::uuid[]) and old_status = 'processing' and app = 'outbox-chores'
"""
STEPS_SINCE = "select count(*) from recorded_steps where who = %s and at > to_timestamp(%s)"


class WorkerFaults:
    """Each act returns its bite and the worker it met, which is another than meant where that one was busy."""

    def __init__(self, ground: Ground, gang: Gang, folder: Path, stop: threading.Event) -> None:
        self._ground = ground
        self._gang = gang
        self._folder = folder
        self._stop = stop
        self.table: dict[str, Callable[[PlannedAct, Slot], Bite]] = {
            "kill_9": self._kill,
            "sigterm": self._terminate,
            "sigstop": self._freeze,
            "clock_shift": self._shift,
        }

    def do(self, act: PlannedAct) -> tuple[str, Bite]:
        with self._gang.someone(act.victim) as slot:
            assert slot.worker is not None
            label = slot.worker.label
            return label, self.table[act.kind](act, slot)

    def _kill(self, act: PlannedAct, slot: Slot) -> Bite:
        hand = self._gang.catch(slot, CATCH_SECONDS)
        assert slot.worker is not None
        slot.worker.kill()
        self._stop.wait(0.2 * act.size)
        self._gang.start(slot)
        told = f"killed with {hand.rows} rows of {len(hand.tokens)} batches held"
        return Bite(hand.rows > 0, told, {"rows": hand.rows})

    def _freeze(self, act: PlannedAct, slot: Slot) -> Bite:
        hand = self._gang.catch(slot, CATCH_SECONDS)
        assert slot.worker is not None
        self._stop.wait(FREEZE_SECONDS + 2 * act.size)
        taken = self._taken(hand)
        slot.worker.thaw()
        told = f"asleep with {hand.rows} rows held, {taken} taken back by others meanwhile"
        return Bite(taken > 0, told, {"rows": taken})

    def _taken(self, hand: Hand) -> int:
        """Whoever sleeps long enough is found out, unless PostgreSQL is down just now."""
        if not hand.tokens:
            return 0
        return wait(lambda: int(self._ground.value(TAKEN, [list(hand.tokens)])), 4, excused=DATABASE_DOWN) or 0

    def _terminate(self, act: PlannedAct, slot: Slot) -> Bite:
        hand = self._gang.catch(slot, CATCH_SECONDS)
        worker = slot.worker
        assert worker is not None
        at = time.time()
        worker.ask_to_stop()
        worker.thaw()
        code = worker.wait(40)
        if worker.facts("worker.started"):  # before that a signal ends it as it ends any program
            self._gang.exit_codes[worker.label] = code
        if code is None:
            worker.kill()
        steps = self._steps(worker.label, at)
        self._gang.start(slot)
        told = f"asked to stop with {hand.rows} rows held, {steps} steps while draining, exit {code}"
        return Bite(hand.rows > 0 and code == 0, told, {"rows": hand.rows})

    def _steps(self, label: str, at: float) -> int:
        try:
            return int(self._ground.value(STEPS_SINCE, [label, at]))
        except DATABASE_DOWN:
            return 0

    def _shift(self, act: PlannedAct, slot: Slot) -> Bite:
        """Started again with a wrong clock, which jumps the other way a moment later (where libfaketime is)."""
        assert slot.worker is not None
        slot.worker.end(10)
        clock = self._folder / f"clock-{slot.name}"
        clock.write_text(f"{act.shift_seconds:+d}s\n", encoding="utf-8")
        mark = self._gang.mark()
        worker = self._gang.start(slot, self._variables(act, clock))
        off = self._await_shift(slot, mark, abs(act.shift_seconds))
        clock.write_text(f"{-act.shift_seconds:+d}s\n", encoding="utf-8")
        told = f"{worker.label} claims with a clock that is {off:+.0f} s off"
        return Bite(abs(off) >= 0.5 * abs(act.shift_seconds), told, {"seconds": round(off)})

    def _variables(self, act: PlannedAct, clock: Path) -> dict[str, str]:
        variables = skewed(act.shift_seconds, str(ROOT))
        if library() is not None:
            variables.pop("FAKETIME")
            variables |= {"FAKETIME_TIMESTAMP_FILE": str(clock.resolve()), "FAKETIME_CACHE_DURATION": "1"}
        return variables

    def _await_shift(self, slot: Slot, mark: dict[Path, int], least: int) -> float:
        """How far the clock of its log is off, once it has claimed something by that clock."""

        def off() -> float:
            claims = (fact for fact in self._gang.since(mark) if fact.get("event") == "batch.claimed")
            found = (_off(str(fact["ts"])) for fact in claims if fact.get("worker") == slot.name)
            return next((off for off in found if abs(off) >= 0.5 * least), 0.0)

        return wait(off, SHIFT_SECONDS, every=0.2, stop=self._stop) or 0.0


def _off(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp() - time.time()
