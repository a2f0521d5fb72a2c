"""Runs the hours: a steady load with kills and restarts, figures minute by minute; goes on after a stop of its own."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import signal
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, LiteralString

import psutil
import psycopg

from labs.about import commit
from labs.ledger import Ledger, LedgerEntry, digest
from labs.producing import CANARY, time_ordered_id
from labs.worker import Worker
from outbox.embedded.folders import make_folder
from outbox.embedded.search_server import EmbeddedSearch
from outbox.embedded.stack import search_server
from tests.nemesis import collect
from tests.nemesis.bite import ActHistory, Bite
from tests.nemesis.gang import Gang, Slot
from tests.nemesis.ground import DATABASE_DOWN, ELASTIC_DOWN, INDEX, Ground
from tests.nemesis.hours_judge import LANE, SLICES, ledger_in, slice_of, slice_of_event, steps_in
from tests.nemesis.load import BAD_ONE_IN, HOT, Producer
from tests.nemesis.recipe import Recipe
from tests.nemesis.run import Run
from tests.nemesis.schedule import KINDS, WORKERS, PlannedAct, acts
from tests.nemesis.waiting import wait
from tests.nemesis.watch import Watch

RATE = 500.0
ENTITIES = 8_000  # what stands for an id is deleted and made again all the time
HOURS_DECKS: Mapping[str, Sequence[str]] = {"kills": ("kill_9",), "restarts": ("es_restart", "pg_fast", "pg_immediate")}
RECIPE = Recipe(frozenset(kind for deck in HOURS_DECKS.values() for kind in deck), LANE)
RETENTION_SECONDS = 60.0
SETTINGS: Mapping[str, str] = {
    "OUTBOX_BATCH_SIZE": "100",
    "OUTBOX_RETENTION_DAYS": f"{RETENTION_SECONDS / 86_400:.9f}",
    "OUTBOX_PRUNE_INTERVAL_SECONDS": "5",
}
LOOK_SECONDS, SAMPLE_SECONDS, STEPS_SECONDS = 1.0, 5.0, 10.0
FEWEST_SAMPLES = 6  # of a minute
YOUNG_SECONDS = 30.0
TOGETHER = 5  # events of a transaction: one at a time would take our process half of a core
# As load.py does it for each: the lock first, in a statement of its own.
WRITE = """
create function nemesis_write(events uuid[], kinds text[], ids text[], documents json[]) returns bigint[]
language plpgsql as $fn$
declare
    drawn bigint;
    found bigint[] := '{}';
begin
    for n in 1 .. cardinality(ids) loop
        perform pg_advisory_xact_lock(hashtextextended(ids[n], 7));
        drawn := null;
        if documents[n] is null then
            delete from nemesis_rows where id = ids[n] returning nextval('search_outbox_version') into drawn;
        else
            insert into nemesis_rows (id, document, version)
            values (ids[n], documents[n], nextval('search_outbox_version'))
            on conflict (id) do update set document = excluded.document, version = excluded.version
            returning version into drawn;
        end if;
        if drawn is not null then
            insert into search_outbox_events (id, entity_type, entity_id, op, event_version, payload)
            values (events[n], kinds[n], ids[n], case when documents[n] is null then 'delete' else 'upsert' end, drawn,
                    documents[n]);
        end if;
        found := found || drawn;
    end loop;
    return found;
end
$fn$
"""
# Of an hour's steps nobody asks by these; and each is read once, soon, and removed.
BARE = """
alter table recorded_steps drop constraint recorded_steps_pkey;
drop index recorded_steps_at_idx, recorded_steps_old_token_idx;
alter table recorded_steps set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)
"""
CALL: LiteralString = "select nemesis_write(%s::uuid[], %s::text[], %s::text[], %s::json[])"
TAKE: LiteralString = """
delete from recorded_steps
returning n, extract(epoch from at)::float8, event_id::text, who, app, old_status, new_status, old_token::text,
          new_token::text, round(lease_left::numeric, 3)::float8, old_attempts, attempts, abandoned, replays, reason,
          dead_reason
"""
SIZES: LiteralString = """
select pg_table_size('search_outbox_events') / 1e6::float8, pg_indexes_size('search_outbox_events') / 1e6::float8,
       (select sum(pg_total_relation_size(oid)) / 1e6::float8 from pg_class
         where relkind = 'r' and starts_with(relname, 'search_outbox_') and relname <> 'search_outbox_events'),
       (select n_dead_tup::float8 from pg_stat_user_tables where relname = 'search_outbox_events'),
       count(*)::float8, coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8
  from search_outbox_events where processed_at is null and failed_at is null
"""
NAMES = ("events table MB", "events indexes MB", "other tables MB", "dead rows", "open", "oldest open s")


class HoursGround(Ground):
    """Servers whose data stay in the run's folder; no proxies between."""

    def __init__(self, folder: Path, seed: int, release: str, recipe: Recipe) -> None:
        super().__init__(seed, release, recipe)
        self._folder = folder

    def _place(self, undo: contextlib.ExitStack) -> Path:
        make_folder(self._folder.resolve())
        return self._folder.resolve()

    def _new_search(self, folder: Path) -> EmbeddedSearch:
        return search_server(self._release)(folder, version=self._release)

    def _make_database(self) -> None:
        self.database_url = self.postgres.database_url("nemesis")
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            if connection.execute("select 1 from pg_database where datname = 'nemesis'").fetchone():
                return
        super()._make_database()
        with self.connect() as connection:
            connection.execute(BARE)
            connection.execute(WRITE)

    def _make_indexes(self) -> None:
        self.elastic.cluster.health(wait_for_status="yellow", timeout="50s")  # its state is read
        if not self.elastic.indices.exists(index=INDEX):
            super()._make_indexes()

    def _build_roads(self, undo: contextlib.ExitStack) -> None:
        """None: a proxy in Python would take a third of a core."""

    def pave(self) -> None:
        """Nothing is in the way."""

    def road(self) -> dict[str, str]:
        """With the timeout as it is by default: on a busy machine a comparison of all takes more than three seconds."""
        server = {"ELASTIC_URL": self.elasticsearch.url, "ELASTIC_INDEX": INDEX, "ELASTIC_TIMEOUT_SECONDS": "30"}
        return {"DATABASE_URL": self.database_url, **server}


class HoursGang(Gang):
    def start(self, slot: Slot, settings: Mapping[str, str] | None = None) -> Worker:
        return super().start(slot, {**SETTINGS, **(settings or {})})


class SlicedLedger(Ledger):
    """Each entry is on disk before the next one, in its document's slice; none stays in memory."""

    def __init__(self, folder: Path) -> None:
        (folder / "history").mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self.entries = []
        self._files = [ledger_in(folder, number).open("a", encoding="utf-8") for number in range(SLICES)]
        self._count = 0

    def add(self, entry: LedgerEntry) -> None:
        file, line = self._files[slice_of(entry.document)], json.dumps(asdict(entry)) + "\n"
        with self._lock:
            self._count += entry.committed
            file.write(line)
            file.flush()

    @property
    def committed(self) -> int:
        return self._count

    def close(self) -> None:
        for file in self._files:
            file.close()


class SteadyProducer(Producer):
    """Of many entities, some in one transaction; no document is refused, because a failed event stays in the table."""

    ENTITIES: ClassVar[int] = ENTITIES

    def _go_on(self, connection: psycopg.Connection[Any], beside: psycopg.Connection[Any], dice: random.Random) -> None:
        while True:
            wishes = {wish["id"]: wish for wish in (self._row(dice) for _ in range(TOGETHER))}
            if self._stop.wait(self._due(len(wishes)) - time.monotonic()):
                return
            self._commit_all(connection, [wishes[id] for id in sorted(wishes)])

    def _commit_all(self, connection: psycopg.Connection[Any], wishes: Sequence[dict[str, Any]]) -> None:
        documents = [wish["document"] and json.dumps(wish["document"]) for wish in wishes]
        values = [[wish[name] for wish in wishes] for name in ("event", "kind", "id")]
        try:
            row = connection.execute(CALL, [*values, documents]).fetchone()
        except psycopg.Error:
            self._refused += len(wishes)  # COMMIT was not sent
            raise
        assert row is not None
        written = [_entry(wish, version) for wish, version in zip(wishes, row[0], strict=True) if version is not None]
        try:
            connection.commit()
        except psycopg.Error:
            written = [entry.unanswered() for entry in written]
            raise
        finally:
            for entry in written:
                self._ledger.add(entry)

    def _event_id(self, document: str) -> uuid.UUID:
        while True:
            number = time_ordered_id().int // SLICES * SLICES + slice_of(document)
            if number % BAD_ONE_IN:
                return uuid.UUID(int=number)


def _entry(wish: dict[str, Any], version: int) -> LedgerEntry:
    document = wish["document"]
    op, body = ("upsert", digest(document)) if document else ("delete", "")
    return LedgerEntry(str(wish["event"]), wish["kind"], wish["id"], op, version, body, time.time())


class StepFiles:
    """Takes the recorded steps out of the database, so that it does not grow by being watched."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self._ground = ground
        self._folder = folder

    def take(self) -> int:
        """Written first and then removed: what is lost between is written again, under the same number."""
        with psycopg.connect(self._ground.database_url, connect_timeout=5) as connection:
            rows = sorted(connection.execute(TAKE).fetchall())
            of: dict[int, list[str]] = defaultdict(list)
            for row in rows:
                of[slice_of_event(row[2])].append(json.dumps(row, separators=(",", ":")))
            for number, lines in of.items():
                with gzip.open(steps_in(self._folder, number), "at", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
        return len(rows)

    def take_until(self, stop: threading.Event) -> None:
        while not stop.wait(STEPS_SECONDS):
            with contextlib.suppress(*DATABASE_DOWN):
                self.take()


class HoursWatch(Watch):
    """Also writes samples.ndjson: of each minute of the load the median of each figure."""

    def __init__(self, ground: Ground, gang: Gang, folder: Path) -> None:
        super().__init__(ground, gang, folder)
        self._followed = [f"{KINDS[n % 2]}:e{n}" for n in (*range(HOT), *range(HOT, ENTITIES, ENTITIES // 48))]
        self._looks = (("seen", self._documents, LOOK_SECONDS), ("timeline", self._table, SAMPLE_SECONDS))
        self._raw: list[dict[str, float]] = []
        self.load = Clock(0.0)

    def _table(self) -> dict[str, Any]:
        line = super()._table()
        line["series"] = series = {**self._of_workers(), **self._of_servers()}
        if self.phase == "storm":
            self._raw.append(series)
            if self.load.seconds // 60 > self.load.minute:
                self.end_minute()
        return line

    def _of_workers(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for worker in self._gang.workers():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(worker.pid)
                if time.time() - process.create_time() < YOUNG_SECONDS:
                    continue  # half a minute after its start it has what it needs
                found[f"{worker.name} private MB"] = process.memory_full_info().uss / 1e6
                found[f"{worker.name} files"] = process.num_fds()
        return found

    def _of_servers(self) -> dict[str, float]:
        found: dict[str, float] = {}
        with contextlib.suppress(*DATABASE_DOWN):
            found |= zip(NAMES, self._ground.rows(SIZES)[0], strict=True)
        with contextlib.suppress(*ELASTIC_DOWN):
            stats = self._ground.elastic.options(request_timeout=5).indices.stats(index=INDEX, metric="store")
            found["search index MB"] = stats["_all"]["total"]["store"]["size_in_bytes"] / 1e6
        return found

    def end_minute(self) -> None:
        raw, self._raw = self._raw, []
        self.load.minute = int(self.load.seconds // 60)
        if len(raw) >= FEWEST_SAMPLES:
            values = {
                name: [one[name] for one in raw if name in one] for name in {name: 0 for one in raw for name in one}
            }
            series = {name: round(median(of), 3) for name, of in values.items()}
            with (self._folder / "samples.ndjson").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"minute": round(self.load.seconds / 60, 2), "series": series}) + "\n")


class Clock:
    """The time of the load alone, over all stops."""

    def __init__(self, before: float) -> None:
        self._before = before
        self._began: float | None = None
        self.minute = int(before // 60)  # that was written last

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._began if self._began is not None else 0.0)

    def start(self) -> None:
        self._began = time.monotonic()

    def stop(self) -> None:
        self._before, self._began = self.seconds, None


class HoursRun(Run):
    DECKS: ClassVar[Mapping[str, Sequence[str]]] = HOURS_DECKS
    GANG: ClassVar[type[Gang]] = HoursGang
    WATCH: ClassVar[type[Watch]] = HoursWatch
    watch: HoursWatch

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state: dict[str, Any] = {"seed": self.seed, "rate": self.rate, "release": self.release}
        self.state |= {"seconds": 0.0, "legs": 0, "lives": 0, "refused": 0, "looks": 0, "exit_codes": {}}
        self.state |= state_in(self.folder) or {}
        self.load = Clock(self.state["seconds"])

    def run(self) -> None:
        began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.history = ActHistory(self.folder)
        left = max(0.0, self.seconds - self.load.seconds) / 60
        self.say(f"starting the servers; then {left:.1f} of {self.seconds / 60:g} minutes")
        with self._ground() as self.ground, SlicedLedger(self.folder) as self.ledger:
            self.ground.elastic_lives = self.state["lives"]
            self.notes |= {**self.ground.versions(), "lane": LANE, "commit": commit()}
            self.prepare()
            taking = threading.Thread(target=self.steps.take_until, args=(self._over,), name="steps", daemon=True)
            taking.start()
            try:
                stopped = self._hours()
                if not stopped:
                    self._last_words()
                self._rest()
                taking.join(60)
                while self.steps.take():
                    pass
                self._save()
                if stopped:
                    raise KeyboardInterrupt
                self._collect()
            finally:
                self._over.set()
                self.watch.stop()
                self.gang.close()
        self.notes["seconds"] = round(time.monotonic() - began, 1)
        self._write()

    def _ground(self) -> Ground:
        return HoursGround(self.folder / "servers", self.seed, self.release, self.recipe)

    def _build(self) -> None:
        super()._build()
        self._over = threading.Event()
        self.steps = StepFiles(self.ground, self.folder)
        self.state["legs"] += 1
        self._seed = self.seed * 1000 + self.state["legs"]
        url = self.ground.database_url
        self.producer = SteadyProducer(url, self.ledger, self._seed, self.rate, self.recipe)
        self.watch.load = self.load
        for slot in self.gang.slots.values():
            slot.starts = 1000 * (self.state["legs"] - 1)  # no name comes twice

    # The hours

    def _hours(self) -> bool:
        """True: somebody stopped it."""
        self.gang.start_all()
        self._save()
        lanes = [threading.Thread(target=self._lane, args=(name,), name=name, daemon=True) for name in self.decks]
        stopped = False
        try:
            if self.load.seconds < self.seconds:
                self.producer.start()
                self.watch.start()
                self.load.start()
                for lane in lanes:
                    lane.start()
            self._wait()
        except KeyboardInterrupt:
            stopped = True
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            self.say("stopping: a minute, until nothing is half done")
        self._end.set()
        self.load.stop()
        self.watch.end_minute()
        self.watch.phase = "drain"
        self.producer.stop()
        for lane in lanes:
            if lane.ident:
                lane.join()
        self.servers.heal()
        self.ground.await_elasticsearch(60)
        self.gang.revive()
        self._save()
        return stopped

    def _wait(self) -> None:
        said = self.load.minute
        while (left := self.seconds - self.load.seconds) > 0:
            time.sleep(min(left, 1.0))
            if self.load.minute > said:
                said = self.load.minute
                self._save()
                self._progress()

    def _lane(self, name: str) -> None:
        for act in acts(name, self._seed, self.decks):
            if self._end.wait(act.gap_seconds):
                return
            self._do(act)

    def _act(self, act: PlannedAct) -> tuple[str, Bite]:
        """The first worker is never killed: a leak needs hours."""
        return super()._act(replace(act, victim=WORKERS[1]) if act.victim == WORKERS[0] else act)

    def _progress(self) -> None:
        series = self.watch.last.get("series", {})
        told = ", ".join(
            f"{name} {series[name]:,.0f}" for name in ("open", "w1 private MB", "events table MB") if name in series
        )
        self.say(f"{self.load.minute:4d} min  {self.ledger.committed} committed, {told}; the last act: {self._last()}")

    # After them

    def _last_words(self) -> None:
        self.notes |= {"backlog": self._backlog(), "healed": time.time()}
        began = time.monotonic()
        self._await_empty()
        self.notes["drain_seconds"] = round(time.monotonic() - began, 1)
        wait(lambda: self.people.verify(patience=300).code != 75, 120)  # on a busy machine a server is late
        self.notes["final_verify"] = asdict(self.people.said[-1])
        self.notes["audit_verify"] = asdict(self.people.outbox("audit", "verify", patience=300))

    def _rest(self) -> None:
        """No worker runs, and nobody reads any more."""
        self.gang.drain()
        self._over.set()
        self.watch.stop()
        self.state["exit_codes"] |= self.gang.exit_codes
        self.state["refused"] += self.producer.refused
        self.state["looks"] += self.watch.looks

    def _save(self) -> None:
        self.state |= {"seconds": round(self.load.seconds, 1), "lives": self.ground.elastic_lives + 1}
        place = self.folder / "state.json"
        place.with_suffix(".new").write_text(json.dumps(self.state, indent=1), encoding="utf-8")
        place.with_suffix(".new").replace(place)

    def _collect(self) -> None:
        said = [said.out + said.err for said in self.people.said]
        self.notes |= {"answers": len(said), "canary_seen": sum(CANARY in text for text in said)}
        self.notes["password_seen"] = self._password_seen(said)
        self.notes |= {"refused_attempts": self.state["refused"], "looks": self.state["looks"]}
        self.notes |= {"exit_codes": self.state["exit_codes"], "legs": self.state["legs"]}
        ours = (f"{KINDS[n % 2]}:e{n}" for n in range(ENTITIES))
        collect.collect(self.folder, self.ground.dicts, self.ground.elastic, INDEX, ours, view=collect.NO_VIEW)


def state_in(folder: Path) -> dict[str, Any] | None:
    """What a run that was stopped goes on from."""
    place = folder / "state.json"
    return dict(json.loads(place.read_text(encoding="utf-8"))) if place.exists() else None
