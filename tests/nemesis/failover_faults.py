"""Owns what is done to the two PostgreSQL servers of the lane failover; each act measures whether it bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import LiteralString

from labs.ledger import Ledger, LedgerEntry
from tests.nemesis.bite import Bite
from tests.nemesis.failover_ground import FailoverGround
from tests.nemesis.failover_load import HeldProducer
from tests.nemesis.gang import Gang
from tests.nemesis.ground import DATABASE_DOWN
from tests.nemesis.schedule import PlannedAct
from tests.nemesis.waiting import wait

BACK_SECONDS = 7.0  # that an old primary is back
MEET_SECONDS = 20.0
SLACK_SECONDS = 5.0  # from the time in the ledger to the commit
STEPS = "select count(*) from recorded_steps"
RAISED = "select count(*) from search_outbox_audit where action = 'VERSION_RAISED'"


class FailoverFaults:
    """`withdrawn`: commits that were answered and lost by a promotion. Whoever reads the ledger goes by that."""

    def __init__(
        self, ground: FailoverGround, gang: Gang, ledger: Ledger, producer: HeldProducer, stop: threading.Event
    ) -> None:
        self._ground = ground
        self._gang = gang
        self._ledger = ledger
        self._producer = producer
        self._stop = stop
        self.withdrawn: dict[str, LedgerEntry] = {}
        # While an old primary is back no worker starts and no person's command: a new process cannot know that there
        # was a promotion, as long as it cannot reach the new one.
        self.starts = threading.Lock()
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "fo_clean": self._clean,
            "fo_lag": self._lag,
            "fo_standby": lambda act: self._back(act, as_standby=True),
            "fo_second": lambda act: self._back(act, as_standby=False),
            "fo_switch": self._switch,
        }

    # Promotions

    def _clean(self, act: PlannedAct) -> Bite:
        """The primary stops in good order: its replica has everything."""
        mark = self._gang.mark()
        self._ground.await_replica()
        self._ground.nodes[self._ground.primary].stop()
        old = self._ground.promote()
        missing = self._missing(self._answered(), 0.0)
        said = self._said(mark, 5)
        self._rebuild(old)
        told = f"stopped and promoted in good order, {missing} commits missing, {said} lines about it"
        return Bite(said > 0 and not missing, told, {"missing": missing})

    def _lag(self, act: PlannedAct) -> Bite:
        """The replica receives nothing for a while, or receives and does not replay; then the primary dies."""
        mark = self._gang.mark()
        lost, old = self._lose(act)
        said = self._said(mark, 5)
        self._rebuild(old)
        told = f"killed with a replica behind, promoted: {lost} answered commits lost, {said} lines about it"
        return Bite(said > 0 and lost > 0, told, {"withdrawn": lost})

    def _back(self, act: PlannedAct, *, as_standby: bool) -> Bite:
        """The old primary comes back at its own address while the new one cannot be reached twice."""
        with self.starts:
            mark = self._gang.mark()
            lost, old = self._lose(act)
            self._said(mark, 5)
            met = self._await_all_here()
            node = self._ground.nodes[old]
            node.standby_signal(as_standby)
            node.start()
            stayed, wrote = self._tempt(old, as_standby=as_standby)
        self._rebuild(old)
        how = "as a standby" if as_standby else "as a second primary"
        told = f"{lost} commits lost; the old primary came back {how}: a worker stayed {stayed:.1f} s, {wrote} writes"
        return Bite(
            met,
            told if met else f"{told}; not every worker had met the new one",
            {"withdrawn": lost, "stayed": round(stayed, 2), "wrote": wrote},
        )

    def _await_all_here(self) -> bool:
        """Every worker has worked on the new primary: who has never met it cannot tell them apart."""
        began = self._ground.value("select clock_timestamp()")
        query: LiteralString = "select distinct who from recorded_steps where at > %s and app = 'outbox-lanes'"

        def met() -> bool:
            labels = {worker.label for worker in self._gang.workers() if worker.running}
            return labels <= {str(who) for (who,) in self._ground.rows(query, [began])}

        return bool(wait(met, MEET_SECONDS, every=0.2, stop=self._stop))

    def _tempt(self, old: int, *, as_standby: bool) -> tuple[float, int]:
        """How long a worker was connected to it at most, and how many steps of events it has had there."""
        ground = self._ground
        stayed, wrote, began = 0.0, 0, time.monotonic()
        with ground.on(old) as connection:
            before = int(str((connection.execute(STEPS).fetchone() or [0])[0]))
            while (past := time.monotonic() - began) < BACK_SECONDS and not self._stop.is_set():
                link = ground.database_link
                if past < 2.0 or 3.5 < past < 5.5:
                    if link._open:
                        link.cut()
                else:
                    link.heal()
                stayed = max([stayed, *(seconds for _, seconds in ground.backends(old))])
                time.sleep(0.1)
            wrote = int(str((connection.execute(STEPS).fetchone() or [0])[0])) - before
        ground.database_link.heal()
        return stayed, wrote

    def _lose(self, act: PlannedAct) -> tuple[int, int]:
        """Answered commits that were lost, and the place of the old primary."""
        ground = self._ground
        ground.await_replica()
        cut_at = time.time()
        ground.streams[ground.primary].cut()
        with ground.on(ground.standby) as connection:
            if act.size < 0.5:
                connection.execute("select pg_wal_replay_pause()")
        self._stop.wait(1.0 + 2 * act.size)
        return self.promote(cut_at)

    def promote(self, since: float) -> tuple[int, int]:
        """The primary dies, and the replica, which has received nothing since then, is promoted."""
        self._ground.nodes[self._ground.primary].kill()
        time.sleep(0.3)  # until whoever was answered has noted it
        answered = self._answered()
        old = self._ground.promote()
        return self._missing(answered, since), old

    def _answered(self) -> list[LedgerEntry]:
        with self._ledger._lock:
            return [entry for entry in self._ledger.entries if entry.committed and entry.id not in self.withdrawn]

    def _missing(self, answered: list[LedgerEntry], since: float) -> int:
        """Of those that were answered. Only what was written while the replica was cut off may be lost by it."""
        known = self._ground.known()
        missing = [entry for entry in answered if entry.id not in known]
        if since:
            self.withdrawn |= {entry.id: entry for entry in missing if entry.at > since - SLACK_SECONDS}
        return len(missing)

    def _rebuild(self, place: int) -> None:
        self._ground.rebuild(place)
        self._ground.await_replica()

    def _said(self, mark: dict[Path, int], within: float) -> int:
        return self._gang.noticed(mark, ("database.lost",), within).total()

    # The switch-over

    def _switch(self, act: PlannedAct) -> Bite:
        """To a new cluster that was filled by logical replication, which carries no sequence."""
        ground = self._ground
        ground.await_replica()
        raised = int(ground.value(RAISED))
        try:
            ground.prepare_switch()
            self._stop.wait(1.0 + act.size)
            with self._producer.held():
                ground.close()
                behind = ground.switch()
        except Exception:
            ground.undo_switch()
            raise
        late = self._await_raise(raised)
        self._rebuild(ground.standby)
        version = behind.get("public.search_outbox_version", 0)
        told = f"switched to a database whose sequences began at 1 instead of {version}; raised after {late:.1f} s"
        return Bite(version > 1, told, {"raised": late >= 0, "seconds": round(late, 1)})

    def _await_raise(self, before: int) -> float:
        began = time.monotonic()
        raised = wait(lambda: self._ground.value(RAISED) > before, 75, stop=self._stop, excused=DATABASE_DOWN)
        return time.monotonic() - began if raised else -1.0
