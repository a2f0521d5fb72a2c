"""Owns what is taken from workers and servers: memory, cores, files, disks, and a clock that steps. Each act measures
whether it bit, and what the workers did meanwhile."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psutil
import psycopg

from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import time_ordered_id
from tests.nemesis.bite import Bite
from tests.nemesis.gang import Slot
from tests.nemesis.ground import DATABASE_DOWN
from tests.nemesis.load import EVENT
from tests.nemesis.schedule import KINDS, PlannedAct
from tests.nemesis.starvation_ground import StarvationGround, StarvedGang
from tests.nemesis.waiting import wait

QUARTER = 0.25
SPELL_SECONDS = 12.0
# Documents of the largest size that producers may write, one per lane of two workers, and a request's worth of others.
LARGEST, MANY = 30_000_000, 1_500_000
STEP_SECONDS = 20
# Of the search server, which checks its disk only now and then, and of what it has kept waiting.
RECOVERY_SECONDS = 120.0
STILL_OPEN: LiteralString = (
    "select exists (select from search_outbox_events where seq <= %s and status in ('pending', 'processing')"
    " and processed_at is null and failed_at is null)"
)


@dataclass
class Effort:
    """What workers did while they could do nothing."""

    cores: float = 0.0  # of the busiest one
    lines: float = 0.0  # per second, of the one that wrote most
    seconds: float = 0.0

    def numbers(self) -> dict[str, float]:
        return {"cores": round(self.cores, 3), "lines": round(self.lines, 2), "spell": round(self.seconds, 1)}


@dataclass
class StarvationFaults:
    ground: StarvationGround
    gang: StarvedGang
    ledger: Ledger
    stop: threading.Event
    table: dict[str, Callable[[PlannedAct], Bite]] = field(default_factory=dict)
    of_workers: dict[str, Callable[[PlannedAct, Slot], Bite]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = {
            "st_memory": self._memory,
            "st_pg_disk": self._postgres_disk,
            "st_es_disk": self._search_disk,
            "st_clock": self._clock,
        }
        self.of_workers = {"st_cpu": self._cpu, "st_files": self._files}

    # What workers do meanwhile

    @contextlib.contextmanager
    def _watched(self) -> Iterator[Effort]:
        effort, began, mark = Effort(), time.monotonic(), self.gang.mark()
        before = {worker.pid: cpu for worker in self.gang.workers() if (cpu := _cpu(worker.pid)) is not None}
        yield effort
        effort.seconds = time.monotonic() - began
        used = [after - cpu for pid, cpu in before.items() if (after := _cpu(pid)) is not None]
        lines = Counter(str(fact.get("worker")) for fact in self.gang.since(mark))
        effort.cores = max(used, default=0.0) / effort.seconds
        effort.lines = max(lines.values(), default=0) / effort.seconds

    # Memory, cores, files

    def _memory(self, act: PlannedAct) -> Bite:
        """Documents of the largest size at once. Then each entity gets a small one again."""
        dice = random.Random(f"{act.number}:large")
        names = [f"e{number}" for number in dice.sample(range(200, 1_400), 10)]
        sizes = [*([LARGEST] * 4), *([MANY] * 6)]
        ids = [self._write(name, "x" * size, dice) for name, size in zip(names, sizes, strict=True)]
        done = self._await_done(ids, 150)
        for name in names:
            self._write(name, "small again", dice)
        about = self.gang.about()
        told = f"{len(ids)} documents of up to {LARGEST >> 20} MiB, {done} done; a worker had {about['peak'] >> 20} MiB"
        told += f" of {about['limit'] >> 20} at most, {about['oom_kills']} were killed for it"
        return Bite(about["peak"] > 0.5 * about["limit"], told, {"peak": about["peak"], "kills": about["oom_kills"]})

    def _write(self, name: str, content: str, dice: random.Random) -> str:
        """One event and its row, as the load writes them."""
        kind, event = KINDS[int(name[1:]) % 2], time_ordered_id()
        document = {"title": name, "kind": kind, "revision": dice.randrange(1_000), "content": content}
        text = json.dumps(document)
        with self.ground.connect() as connection, connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 7))", [name])
            row = connection.execute(
                "insert into nemesis_rows (id, document, version) values (%s, %s, nextval('search_outbox_version'))"
                " on conflict (id) do update set document = excluded.document, version = excluded.version"
                " returning version",
                [name, text],
            ).fetchone()
            assert row is not None
            version = int(row[0])
            what = {"event": event, "kind": kind, "id": name, "op": "upsert", "version": version, "payload": text}
            connection.execute(EVENT, what)
        self.ledger.add(LedgerEntry(str(event), kind, name, "upsert", version, digest(document), time.time()))
        return str(event)

    def _await_done(self, ids: list[str], seconds: float) -> int:
        deadline, done = time.monotonic() + seconds, 0
        query = (
            "select count(*) from recorded_steps where event_id = any (%s::uuid[]) and new_status in ('done', 'failed')"
        )
        while done < len(ids) and time.monotonic() < deadline and not self.stop.is_set():
            with contextlib.suppress(*DATABASE_DOWN):
                done = int(self.ground.value(query, [ids]))
            time.sleep(0.3)
        return done

    def _cpu(self, act: PlannedAct, slot: Slot) -> Bite:
        """A quarter of a core, from its start."""
        assert slot.worker is not None
        slot.worker.end(25)
        self.gang.start(slot)
        worker, group = slot.worker, self.gang.group(slot)
        group.allow_cores(QUARTER)
        self.stop.wait(SPELL_SECONDS + 8 * act.size)
        waited, lives = group.throttled, worker.running
        answers = self._is_well(slot, 30)
        group.allow_cores(None)
        told = f"a quarter of a core for {worker.label}: throttled in {waited} periods, healthy: {answers}"
        return Bite(waited > 0, told, {"alive": lives, "well": answers})

    def _is_well(self, slot: Slot, seconds: float) -> bool:
        well = wait(lambda: slot.worker is not None and slot.worker.page("/healthz", 3)[0] == 200, seconds, every=0.3)
        return bool(well)

    def _files(self, act: PlannedAct, slot: Slot) -> Bite:
        """No new file for it, while its connections break."""
        worker = slot.worker
        assert worker is not None
        self._is_well(slot, 30)
        before = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        with self._watched() as effort:
            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (8, before[1]))
            with contextlib.suppress(*DATABASE_DOWN):
                self._break(worker.label)
            self.ground.elastic_link.drop()
            self.stop.wait(6 + 4 * act.size)
            without = worker.page("/healthz", 2)[0]
        lives = worker.running
        if lives:
            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, before)
        well = self._is_well(slot, 40)
        if not worker.running:
            self.gang.start(slot)
        told = f"no file for {worker.label} in {effort.seconds:.0f} s (its page: {without or 'no answer'}), alive:"
        told += f" {lives}, well after it: {well}; {effort.cores:.2f} cores, {effort.lines:.1f} lines per second"
        return Bite(True, told, {**effort.numbers(), "alive": lives, "well": well})

    def _break(self, label: str) -> None:
        self.ground.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'outbox-%%'"
        )

    # Disks

    def _postgres_disk(self, act: PlannedAct) -> Bite:
        """A server that ended for want of a disk is started again, as its unit would do it."""
        mark, refused = self.gang.mark(), 0
        with self._watched() as effort, self.ground.postgres.full():
            deadline = time.monotonic() + SPELL_SECONDS + 6 * act.size
            while time.monotonic() < deadline and not self.stop.is_set():
                refused += not self._can_write()
                time.sleep(0.5)
        lived = self.ground.postgres.running and self._answers()
        if not lived:
            self.ground.postgres.stop()
            self.ground.postgres.start()
        said = Counter(str(fact.get("event")) for fact in self.gang.since(mark))
        told = f"PostgreSQL's disk full: {refused} writes refused, the server {'lived' if lived else 'ended'};"
        told += (
            f" {said['database.lost']} lines about it; {effort.cores:.2f} cores, {effort.lines:.1f} lines per second"
        )
        return Bite(refused > 0, told, effort.numbers())

    def _can_write(self) -> bool:
        try:
            with self.ground.connect() as connection:
                connection.execute(
                    "create temporary table wide as select repeat('x', 1000) t from generate_series(1, 20000)"
                )
        except psycopg.Error:
            return False
        return True

    def _answers(self) -> bool:
        try:
            return bool(self.ground.value("select 1"))
        except DATABASE_DOWN:
            return False

    def _search_disk(self, act: PlannedAct) -> Bite:
        """Until its flood stage blocks the index, and back; a server that ended is started again."""
        server = self.ground.elasticsearch
        mark = self.gang.mark()
        with self._watched() as effort, server.full():  # type: ignore[attr-defined]
            deadline = time.monotonic() + 25 + 6 * act.size
            while time.monotonic() < deadline and not self.stop.is_set():
                time.sleep(0.5)
        facts = list(self.gang.since(mark))
        paused = sum(fact.get("event") == "sink.paused" for fact in facts)
        back = given_back(facts)
        lived = server.running
        if not lived:
            self.ground.elastic_lives += 1
            server.start()
        took = self._catches_up()
        told = f"the search server's disk full: {paused} pauses, {back} events given back, the server"
        told += f" {'lived' if lived else 'ended'}, caught up {took:.0f} s after it;"
        told += f" {effort.cores:.2f} cores, {effort.lines:.1f} lines per second"
        return Bite(paused > 0 or back > 0, told, {**effort.numbers(), "well": took < RECOVERY_SECONDS})

    def _catches_up(self) -> float:
        """After how many seconds all is over that was open when it could go on."""
        began, newest = time.monotonic(), "select coalesce(max(seq), 0) from search_outbox_events"
        last = wait(lambda: int(self.ground.value(newest)), RECOVERY_SECONDS, excused=DATABASE_DOWN)
        wait(lambda: not self.ground.value(STILL_OPEN, [last]), RECOVERY_SECONDS, every=0.5, excused=DATABASE_DOWN)
        return time.monotonic() - began

    # The database's clock

    def _clock(self, act: PlannedAct) -> Bite:
        """It alone decides about leases and due times."""
        before = self._offset()
        self.ground.postgres.set_clock(STEP_SECONDS)
        self.stop.wait(8)
        there = self._offset()
        self.ground.postgres.set_clock(-STEP_SECONDS)
        self.stop.wait(8)
        back = self._offset()
        self.ground.postgres.set_clock(0)
        told = f"the database's clock went from {before:+.0f} to {there:+.0f}, {back:+.0f} s and right again"
        return Bite(there - back > STEP_SECONDS, told, {"step": round(there - back)})

    def _offset(self) -> float:
        try:
            return float(self.ground.value("select extract(epoch from clock_timestamp())")) - time.time()
        except DATABASE_DOWN:
            return 0.0


def given_back(facts: Iterable[Mapping[str, Any]]) -> int:
    """Events that workers let go without an attempt: shards that are there no more pause nobody, others may live."""
    settled = (fact for fact in facts if fact.get("event") == "batch.settled")
    return sum(int(fact.get("counts", {}).get("released", 0)) for fact in settled)


def _cpu(pid: int) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)
