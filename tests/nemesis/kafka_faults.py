"""Owns what is done to workers of a consumer group, to brokers and to Connect; each fault measures whether it bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from labs.worker import log_facts
from outbox.embedded import EmbeddedKafka
from tests.nemesis.bite import Bite
from tests.nemesis.gang import Gang, Slot
from tests.nemesis.kafka_ground import KAFKA_DOWN, SESSION_SECONDS, KafkaGround
from tests.nemesis.schedule import PlannedAct
from tests.nemesis.waiting import wait
from tests.nemesis.worker_faults import WorkerFaults

TAKEOVER_SECONDS = SESSION_SECONDS + 5.0
LOOK_SECONDS = 2 * TAKEOVER_SECONDS  # for a takeover that comes too late
HELD_SECONDS = 30.0  # until a worker that has just joined has partitions
MEND_SECONDS = 2.0
CALM_SECONDS = 10.0  # after a broker is back: until its group has found its coordinator
SAID = ("stream.assigned", "stream.revoked", "stream.lost")


def owners(facts: Iterable[dict[str, Any]]) -> dict[int, str]:
    """The worker of each partition, by what all of them said. The last one counts: a dead worker, and one that joins
    anew after an error, does not say what it has lost."""
    found: dict[int, str] = {}
    said = [fact for fact in facts if fact.get("event") in SAID]
    for fact in sorted(said, key=lambda fact: str(fact["ts"])):
        for number in fact["partitions"]:
            if fact["event"] == "stream.assigned":
                found[number] = str(fact["worker"])
            elif found.get(number) == fact["worker"]:
                del found[number]
    return found


class GroupFaults(WorkerFaults):
    """A victim is met while it has partitions; a takeover lasts from its last moment until others have all of them.
    Every second one while all brokers are there: those are judged."""

    def __init__(
        self, ground: KafkaGround, gang: Gang, folder: Path, stop: threading.Event, stream: StreamFaults
    ) -> None:
        super().__init__(ground, gang, folder, stop)
        self._stream = stream
        self.table: dict[str, Callable[[PlannedAct, Slot], Bite]] = {
            "kill_9": self._kill,
            "sigterm": self._terminate,
            "sigstop": self._freeze,
        }

    def do(self, act: PlannedAct) -> tuple[str, Bite]:
        with self._stream.all_brokers() if act.number % 2 else nullcontext():
            return super().do(act)

    def _kill(self, act: PlannedAct, slot: Slot) -> Bite:
        partitions, mark = self._holding(slot), self._gang.mark()
        assert slot.worker is not None
        at = time.time()
        slot.worker.kill()
        took = self._takeover(slot, partitions, mark, at)
        self._gang.start(slot)
        return _taken("killed", partitions, took, at)

    def _freeze(self, act: PlannedAct, slot: Slot) -> Bite:
        partitions, mark = self._holding(slot), self._gang.mark()
        assert slot.worker is not None
        at = time.time()
        slot.worker.freeze()
        took = self._takeover(slot, partitions, mark, at)
        self._stop.wait(2 * act.size)
        slot.worker.thaw()
        return _taken("asleep", partitions, took, at)

    def _terminate(self, act: PlannedAct, slot: Slot) -> Bite:
        """It leaves its group in good order: others need not wait for its session."""
        partitions, mark = self._holding(slot), self._gang.mark()
        worker = slot.worker
        assert worker is not None
        at = time.time()
        worker.ask_to_stop()
        code = worker.wait(40)
        if worker.facts("worker.started"):
            self._gang.exit_codes[worker.label] = code
        if code is None:
            worker.kill()
        took = self._takeover(slot, partitions, mark, at)
        self._gang.start(slot)
        told = f"asked to stop with {len(partitions)} partitions, exit {code}, others had them after {_seconds(took)}"
        return Bite(bool(partitions) and took is not None and code in (0, 3), told, {"partitions": len(partitions)})

    def _holding(self, slot: Slot) -> set[int]:
        worker = slot.worker
        assert worker is not None
        if not worker.running:  # it began while PostgreSQL was down, and left
            worker = self._gang.start(slot)
        wait(lambda: self._held(slot) or not worker.running, HELD_SECONDS, stop=self._stop)
        return self._held(slot)

    def _held(self, slot: Slot) -> set[int]:
        facts = [fact for log in self._gang.logs() for fact in log_facts(log)]
        return {number for number, worker in owners(facts).items() if worker == slot.name}

    def _takeover(self, slot: Slot, partitions: set[int], mark: dict[Path, int], at: float) -> float | None:
        """Seconds until the others had all of them; None: they had not."""

        def taken() -> float | None:
            first: dict[int, float] = {}
            for fact in self._gang.since(mark):
                if fact.get("event") == "stream.assigned" and fact.get("worker") != slot.name:
                    when = datetime.fromisoformat(str(fact["ts"])).timestamp()
                    for number in partitions.intersection(fact["partitions"]):
                        if when >= at:
                            first[number] = min(when, first.get(number, when))
            return max(first.values()) - at if first.keys() == partitions else None

        return wait(taken, LOOK_SECONDS, every=0.2) if partitions else None


def _taken(how: str, partitions: set[int], took: float | None, at: float) -> Bite:
    told = f"{how} with {len(partitions)} partitions, others had them after {_seconds(took)}"
    numbers = {"partitions": float(len(partitions)), "takeover": -1.0 if took is None else round(took, 2), "at": at}
    return Bite(took is not None, told, numbers if partitions else {})


def _seconds(took: float | None) -> str:
    return "never" if took is None else f"{took:.1f} s"


class StreamFaults:
    """Brokers and Connect. `restarted`: how often a failed task of the connector was started again."""

    def __init__(self, ground: KafkaGround, gang: Gang, stop: threading.Event) -> None:
        self._ground = ground
        self._gang = gang
        self._stop = stop
        self._brokers = threading.Lock()
        self._back_at = 0.0
        self.restarted = 0
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "broker_kill": self._kill_broker,
            "broker_stop": self._freeze_broker,
            "connect_kill": self._kill_connect,
        }

    @contextmanager
    def all_brokers(self) -> Iterator[None]:
        """None is down meanwhile, and none was a moment ago."""
        with self._brokers:
            self._stop.wait(max(0.0, self._back_at + CALM_SECONDS - time.time()))
            yield

    def watch_connector(self, until: threading.Event) -> None:
        """A thread's work."""
        while not until.wait(MEND_SECONDS):
            self.restarted += self._ground.restart_connector()

    def _kill_broker(self, act: PlannedAct) -> Bite:
        return self._take_down(act, "killed", EmbeddedKafka.kill, EmbeddedKafka.start)

    def _freeze_broker(self, act: PlannedAct) -> Bite:
        """Its connections stay open: whoever waits for its answer has to give up by itself."""
        return self._take_down(act, "asleep", EmbeddedKafka.freeze, EmbeddedKafka.thaw)

    def _take_down(
        self,
        act: PlannedAct,
        how: str,
        harm: Callable[[EmbeddedKafka], object],
        restore: Callable[[EmbeddedKafka], object],
    ) -> Bite:
        """The one that leads the most partitions. The others must lead them while it is down."""
        with self._brokers:
            try:
                leaders = self._ground.leaders()
            except KAFKA_DOWN as away:
                return Bite(False, f"could not be read: {away}")
            broker = max(self._ground.kafka.brokers, key=lambda each: list(leaders.values()).count(each.node))
            led = {number for number, leader in leaders.items() if leader == broker.node}
            began = time.time()
            harm(broker)
            try:
                moved = self._moved(broker.node, led, 12 + 4 * act.size)
                self._stop.wait(2 * act.size)
            finally:
                restore(broker)
                self._back_at = time.time()
        took = self._back_at - began
        told = f"broker {broker.node} {how}, {moved} of {len(led)} partitions led by others, down {took:.0f} s"
        return Bite(moved > 0, told, {"partitions": moved, "from": began, "until": began + took})

    def _moved(self, node: int, led: set[int], within: float) -> int:
        deadline, moved = time.monotonic() + within, 0
        while moved < len(led) and time.monotonic() < deadline:
            time.sleep(0.2)
            try:
                leaders = self._ground.leaders(without=node)
                moved = sum(leaders[number] not in (node, -1) for number in led)
            except KAFKA_DOWN:
                continue
        return moved

    def _kill_connect(self, act: PlannedAct) -> Bite:
        """The log grows and the topic does not; then it goes on where it was."""
        self._ground.connect_server.kill()
        try:
            time.sleep(0.5)  # what its producer had sent
            stood, before = sum(self._ground.ends().values()), self._ground.written()
            self._stop.wait(3 + 4 * act.size)
            still, missed = sum(self._ground.ends().values()) == stood, self._ground.written() - before
        except KAFKA_DOWN as away:
            return Bite(False, f"could not be read: {away}")
        finally:
            self._ground.start_connect()
        went_on = self._went_on(stood)
        told = f"killed, {missed} events written meanwhile, the topic {'did not grow' if still else 'GREW'}, then "
        told += "grew again" if went_on else "did not grow"
        return Bite(still and missed > 0 and went_on, told, {"events": missed})

    def _went_on(self, stood: int) -> bool:
        return bool(wait(lambda: sum(self._ground.ends().values()) > stood, 60, every=0.2, excused=KAFKA_DOWN))

    def heal(self) -> None:
        for broker in self._ground.kafka.brokers:
            broker.thaw()
            if not broker.running:
                broker.start()
        if not self._ground.connect_server.running:
            self._ground.start_connect()
