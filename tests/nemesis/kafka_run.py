"""Runs a nemesis with Kafka as the source: the same storm over a consumer group, its brokers and its connector."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar, LiteralString

from labs.collect import write
from tests.nemesis.ground import DATABASE_DOWN
from tests.nemesis.kafka_faults import TAKEOVER_SECONDS, GroupFaults, StreamFaults
from tests.nemesis.kafka_ground import KAFKA_DOWN, PARTITIONS, SESSION_SECONDS, KafkaGround
from tests.nemesis.parts import PARTS
from tests.nemesis.people import People
from tests.nemesis.run import OPEN, Run
from tests.nemesis.waiting import wait

STORED: LiteralString = (
    "select id, entity_type || ':' || entity_id as document, op, event_version, status, dead_reason,"
    " extract(epoch from processed_at)::float8 as done_at from search_outbox_events order by seq"
)
WELL_SECONDS = 60.0
# A comparison waits for the connector and for the topic before each of its checks.
COMMAND_SECONDS = 120.0
FAILED: LiteralString = "select id::text, dead_reason from search_outbox_events where failed_at is not null"


class KafkaRun(Run):
    LONGER_SECONDS: ClassVar[float] = 300.0  # with four servers more a restart takes a minute on two busy cores
    ground: KafkaGround

    def _ground(self) -> KafkaGround:
        self.say("and three Kafka brokers, and Kafka Connect: one more minute")
        return KafkaGround(self.seed, self.release, self.recipe)

    def _build(self) -> None:
        super()._build()
        # Of payloads PostgreSQL has only the exceptions.
        compared = next((PARTS[name].kinds[0] for name in self.recipe.parts), None)
        self.people = People(self.ground, self.folder, self._end, COMMAND_SECONDS, compared=compared)
        self.stream = StreamFaults(self.ground, self.gang, self._end)
        self.servers.table |= self.stream.table
        self.workers = GroupFaults(self.ground, self.gang, self.folder, self._end, self.stream)
        self.notes |= {
            "source": "kafka",
            "partitions": PARTITIONS,
            "session_seconds": SESSION_SECONDS,
            "takeover_seconds": TAKEOVER_SECONDS,
        }

    def _storm(self) -> None:
        self._over = threading.Event()
        threading.Thread(
            target=self.stream.watch_connector, args=(self._over,), name="connector-watch", daemon=True
        ).start()
        super()._storm()

    def _heal(self) -> None:
        self.say("healing")
        self.producer.stop()
        self.notes["backlog"] = self._backlog()
        self.stream.heal()
        self.servers.heal()
        self.gang.revive()
        self._position = self.ground.position()
        self.notes["healed"] = time.time()
        self.watch.phase = "drain"

    def _backlog(self) -> int:
        try:
            return self.ground.lag() + int(self.ground.value(OPEN))
        except (*KAFKA_DOWN, *DATABASE_DOWN):
            return 0

    def _await_empty(self) -> None:
        """What was committed is in the topic, the topic is read to its end, and no stored row waits."""
        super()._await_empty()
        self.notes.setdefault("failed_rows", self._failed())

    def _is_empty(self) -> bool:
        """In this order: what is captured is in the topic when its end is read."""
        try:
            return self.ground.is_captured(self._position) and not self.ground.lag() and not self.ground.value(OPEN)
        except KAFKA_DOWN:
            return False

    def _failed(self) -> list[list[Any]]:
        """Before anyone replays them for the last time."""
        return [list(row) for row in self.ground.rows(FAILED)]

    def _coda(self) -> None:
        """What is done leaves no step to count by; but every worker must be well by now."""
        self.watch.phase = "coda"
        wait(lambda: not self._ill(), WELL_SECONDS, every=0.5)
        self.notes["ill_workers"] = self._ill()

    def _ill(self) -> list[str]:
        return [worker.label for worker in self.gang.workers() if worker.page("/healthz")[0] != 200]

    def _leave(self) -> None:
        super()._leave()
        self._over.set()
        self.notes["connector_restarted"] = self.stream.restarted
        write(self.folder / "stored.ndjson", self.ground.dicts(STORED))
        answered = {entry.id for entry in self.ledger.entries if entry.committed}
        write(self.folder / "strays.ndjson", self.ground.strays(answered))
