"""Owns what is done to PostgreSQL, Elasticsearch and the connections between; each fault measures whether it bit."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable

from tests.nemesis.bite import Bite
from tests.nemesis.gang import Gang
from tests.nemesis.ground import DATABASE_DOWN, NEIGHBOUR, Ground
from tests.nemesis.schedule import PlannedAct

BACKENDS = "select count(*) from pg_stat_activity where application_name like 'outbox-%%'"
TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
 where application_name in ('outbox-lanes', 'outbox-documents', 'outbox-heartbeat') and random() <= %s
"""
IN_FLIGHT = "select count(*), coalesce(sum(cardinality(ids)), 0) from search_outbox_leases"
# Longer than a request may take (2.1 s): a stalled one has timed out by then.
STALL_SECONDS = 3.0
FLOOD_THREADS = 28
FLOOD = "".join(f'{{"index":{{"_id":{n}}}}}\n{json.dumps({"title": "x " * 200})}\n' for n in range(200)).encode()


class ServerFaults:
    def __init__(self, ground: Ground, gang: Gang, stop: threading.Event) -> None:
        self._ground = ground
        self._gang = gang
        self._stop = stop
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "pg_terminate": self._terminate,
            "pg_fast": lambda act: self._restart_postgres(act, "fast"),
            "pg_immediate": lambda act: self._restart_postgres(act, "immediate"),
            "es_cut": self._cut,
            "es_stall": self._stall,
            "es_lose_reply": self._lose,
            "es_429": self._flood,
            "db_cut": self._cut_database,
            "db_stall": self._stall_database,
            "es_restart": self._restart_elasticsearch,
        }

    def _in_flight(self) -> tuple[int, int]:
        """Zeros while PostgreSQL is down: the other lane may have ended it just now."""
        try:
            batches, rows = self._ground.rows(IN_FLIGHT)[0]
        except DATABASE_DOWN:
            return 0, 0
        return int(batches), int(rows)

    # PostgreSQL

    def _terminate(self, act: PlannedAct) -> Bite:
        mark = self._gang.mark()
        batches, _ = self._in_flight()
        ended = int(self._ground.value(TERMINATE, [0.4 + 0.6 * act.size]))
        said = self._gang.noticed(mark, ("database.lost", "loop.error", "lane.error"), 4)
        told = f"{ended} backends terminated, {batches} batches in flight, {said.total()} lines about it"
        return Bite(ended > 0 and said.total() > 0, told, {"backends": ended})

    def _restart_postgres(self, act: PlannedAct, how: str) -> Bite:
        mark = self._gang.mark()
        backends = int(self._ground.value(BACKENDS))
        batches, rows = self._in_flight()
        self._ground.stop_postgres(how)
        self._stop.wait(0.3 + act.size)
        self._ground.postgres.start()
        said = self._gang.noticed(mark, ("database.lost",), 4)
        told = f"{how}: {backends} backends and {batches} batches ({rows} rows) cut off, {said.total()} lines about it"
        return Bite(backends > 0 and said.total() > 0, told, {"batches": batches})

    def _cut_database(self, act: PlannedAct) -> Bite:
        link, mark = self._ground.database_link, self._gang.mark()
        before = link.counts["dropped"]
        link.cut()
        self._stop.wait(0.5 + act.size)
        link.heal()
        dropped = link.counts["dropped"] - before
        said = self._gang.noticed(mark, ("database.lost",), 4)
        told = f"{dropped} connections broken, {said.total()} lines about it"
        return Bite(dropped > 0 and said.total() > 0, told, {"connections": dropped})

    def _stall_database(self, act: PlannedAct) -> Bite:
        """Bytes on their way stop; then the connections break, so that commits lose their answers."""
        link, mark = self._ground.database_link, self._gang.mark()
        batches, rows = self._in_flight()
        link.stall()
        self._stop.wait(1.0 + 2 * act.size)
        before = link.counts["dropped"]
        link.drop()
        link.heal()
        dropped = link.counts["dropped"] - before
        said = self._gang.noticed(mark, ("database.lost",), 6)
        told = f"{batches} batches ({rows} rows) in flight, {dropped} connections broken, {said.total()} lines about it"
        return Bite(dropped > 0 and said.total() > 0, told, {"connections": dropped})

    # Elasticsearch

    def _cut(self, act: PlannedAct) -> Bite:
        link, mark = self._ground.elastic_link, self._gang.mark()
        before = link.counts["dropped"]
        link.cut()
        self._stop.wait(1.0 + 2 * act.size)
        self._ground.pave_elastic()
        dropped = link.counts["dropped"] - before
        said = self._gang.noticed(mark, ("sink.paused",), 4)
        return Bite(said.total() > 0, f"{dropped} connections broken, {said.total()} workers paused")

    def _stall(self, act: PlannedAct) -> Bite:
        link, mark = self._ground.elastic_link, self._gang.mark()
        link.stall()
        self._stop.wait(STALL_SECONDS + 2 * act.size)
        said = self._gang.noticed(mark, ("sink.paused",), 4)
        self._ground.pave_elastic()
        return Bite(said.total() > 0, f"requests hung, {said.total()} workers paused")

    def _lose(self, act: PlannedAct) -> Bite:
        link = self._ground.elastic_link
        again = self._ground.wire.again
        link.lose_replies(b"/_bulk", share=0.4)
        deadline = time.monotonic() + 2 + 2 * act.size
        while time.monotonic() < deadline or (not link.counts["replies_lost"] and time.monotonic() < deadline + 5):
            time.sleep(0.05)
        self._ground.pave_elastic()
        time.sleep(0.3)
        lost = link.counts["replies_lost"]
        more = self._ground.wire.again - again
        return Bite(lost > 0 and more > 0, f"{lost} replies lost, {more} versions sent again", {"replies": lost})

    def _flood(self, act: PlannedAct) -> Bite:
        """Others write so much to the same node that its tiny queue overflows: it answers our workers 429."""
        mark, until = self._gang.mark(), time.monotonic() + 3.0 + 3 * act.size
        threads = [threading.Thread(target=self._write, args=(until,), daemon=True) for _ in range(FLOOD_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = sum(
            int(fact.get("counts", {}).get("transient", 0))
            for fact in self._gang.since(mark)
            if fact.get("event") == "bulk.partial_failure"
        )
        return Bite(refused > 0, f"{refused} documents refused with 429", {"documents": refused})

    def _write(self, until: float) -> None:
        url = f"{self._ground.elasticsearch.url}/{NEIGHBOUR}-flood/_bulk?filter_path=errors"
        headers = {"Content-Type": "application/x-ndjson"}
        while time.monotonic() < until and not self._stop.is_set():
            try:
                urllib.request.urlopen(urllib.request.Request(url, FLOOD, headers), timeout=5).close()
            except OSError:
                time.sleep(0.01)

    def _restart_elasticsearch(self, act: PlannedAct) -> Bite:
        """In good order, or, the next time, by kill -9."""
        kill = act.round % 2 == 1
        mark = self._gang.mark()
        batches, rows = self._in_flight()
        began = time.monotonic()
        self._ground.end_elasticsearch(kill=kill)
        self._ground.start_elasticsearch()
        said = self._gang.noticed(mark, ("sink.paused",), 4)
        took = time.monotonic() - began
        how = "kill -9" if kill else "stopped"
        told = f"{how} with {batches} batches ({rows} rows) in flight, away {took:.0f} s, {said.total()} workers paused"
        return Bite(said.total() > 0, told, {"seconds": round(took, 1)})

    def heal(self) -> None:
        for server in (self._ground.postgres, self._ground.elasticsearch):
            if not server.running:
                server.start()
        self._ground.pave()
