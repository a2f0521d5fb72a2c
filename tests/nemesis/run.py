"""Runs a nemesis: servers, workers, load, faults in five lanes, heal, drain, coda; leaves a folder to be judged."""

from __future__ import annotations

import json
import platform
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from labs.about import commit
from labs.collect import write
from labs.faketime import how
from labs.ledger import Ledger
from labs.producing import CANARY
from outbox.embedded.products import release_of
from tests.nemesis import collect, gaps
from tests.nemesis.bite import ActHistory, Bite
from tests.nemesis.gang import LEASE_SECONDS, SETTINGS, Gang
from tests.nemesis.ground import DATABASE_DOWN, ELASTIC_DOWN, INDEX, Ground, make_parts
from tests.nemesis.lanes import LANES
from tests.nemesis.load import DRAFT, Producer
from tests.nemesis.neighbours import Neighbours, seconds_for
from tests.nemesis.parts import PARTS
from tests.nemesis.people import People, last_line
from tests.nemesis.quiet import Quiet
from tests.nemesis.recipe import Recipe, in_order
from tests.nemesis.schedule import PlannedAct, acts
from tests.nemesis.schema_faults import SchemaFaults
from tests.nemesis.server_faults import ServerFaults
from tests.nemesis.verdict import ONCE, least_bites
from tests.nemesis.waiting import wait
from tests.nemesis.watch import Watch
from tests.nemesis.worker_faults import WorkerFaults

LONGER_SECONDS = 300.0  # so much longer a run may take until everything has bitten; a long one a sixth of its time
DRAIN_SECONDS = 600.0
TRIES_AT_THE_END = 20
CODA_SECONDS = 4.0
LAST_CUT_SECONDS = 8.0
OPEN = "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
DONE_STEPS = "select count(*) from recorded_steps where old_status = 'processing' and new_status = 'done'"


@dataclass
class Run:
    DECKS: ClassVar[Mapping[str, Sequence[str]]] = {}  # of a lane of its own; else the recipe says
    LONGER_SECONDS: ClassVar[float] = LONGER_SECONDS
    MINUTES_APART: ClassVar[float] = 3  # between two bites of one kind, at most
    GANG: ClassVar[type[Gang]] = Gang
    WATCH: ClassVar[type[Watch]] = Watch

    folder: Path
    seconds: float
    seed: int
    rate: float
    say: Callable[[str], None]
    recipe: Recipe
    lane: str = "all"  # or `storm`, or `neighbours` alone
    poison: Collection[str] = ()
    release: str = "elasticsearch"
    notes: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._end = threading.Event()  # of the storm
        self._quiet = Quiet()
        self.decks = self.DECKS or self.recipe.decks

    def run(self) -> None:
        """Leaves about.json and the raw history in the folder."""
        began = time.monotonic()
        self.notes["commit"] = commit()  # now: in half an hour the checkout may have another one
        self.folder.mkdir(parents=True, exist_ok=True)
        self.history = ActHistory(self.folder)
        self.say(f"{self.recipe.name}: {self.recipe}")
        self.say(f"starting PostgreSQL and {release_of(self.release).product.title}: half a minute")
        with self._ground() as self.ground, Ledger(self.folder / "ledger.ndjson") as self.ledger:
            if self.lane in ("all", "neighbours"):
                self._neighbours()
            if self.lane == "neighbours":
                self._write_neighbours()
                return
            self.notes |= {**self.ground.versions(), "neighbour_before": self.ground.neighbour()}
            self.prepare()
            try:
                self._storm()
                self._last_fault()
                self._heal()
                self._drain()
                self._coda()
                self._leave()
            finally:
                self.watch.stop()
                self.gang.close()
        self.notes["seconds"] = round(time.monotonic() - began, 1)
        self._write()

    def _ground(self) -> Ground:
        return Ground(self.seed, self.release, self.recipe)

    def prepare(self) -> None:
        """Whoever acts; what each lane has in its own way, and what all have."""
        self._build()
        self.schema = SchemaFaults(self.ground, self.people, self.producer, self._end)

    def _build(self) -> None:
        self.gang = self.GANG(self.ground, self.folder)
        self.watch = self.WATCH(self.ground, self.gang, self.folder)
        self.people = People(self.ground, self.folder, self._end)
        self.servers = ServerFaults(self.ground, self.gang, self._end)
        self.workers = WorkerFaults(self.ground, self.gang, self.folder, self._end)
        self.producer = Producer(self.ground.database_url, self.ledger, self.seed, self.rate, self.recipe)
        if self.lane in LANES:
            self.notes["lane"] = self.lane

    def _neighbours(self) -> None:
        """Before the storm: its faults would drown the figure."""
        seconds = self.seconds if self.lane == "neighbours" else seconds_for(self.seconds)
        Neighbours(self.ground, self.folder, seconds, self.seed, self.say, only=self.poison).run()

    def _write_neighbours(self) -> None:
        about = {**self._about(), **self.ground.versions(), "lane": self.lane}
        (self.folder / "about.json").write_text(json.dumps(about, indent=1, default=str), encoding="utf-8")
        self.history.close()

    # The storm

    def _storm(self) -> None:
        self.gang.start_all()
        if self.recipe.has("late-view"):
            with self.ground.connect() as connection:
                make_parts(connection, self.recipe)
        self.producer.start()
        self.watch.start()
        self._began = time.monotonic()
        self.notes["storm_began"] = time.time()
        lanes = [threading.Thread(target=self._lane, args=(name,), name=name, daemon=True) for name in self.decks]
        for lane in lanes:
            lane.start()
        said = self._began
        while any(lane.is_alive() for lane in lanes):
            if time.monotonic() - said >= 10:
                said = time.monotonic()
                self._progress()
            if time.monotonic() - self._began > self.seconds + max(self.LONGER_SECONDS, self.seconds / 6):
                self._end.set()
            time.sleep(0.1)
        self._end.set()
        self.notes.setdefault("storm_ended", time.time())

    def _lane(self, name: str) -> None:
        """Until the time is over and the first deck played; what has not bitten often enough by then is tried again."""
        plan = acts(name, self.seed, self.decks)
        for act in plan:
            if self._end.wait(act.gap_seconds):
                return
            if time.monotonic() - self._began >= self.seconds and act.round > 0:
                break
            self._do(act)
        self.notes.setdefault("storm_ended", time.time())  # by the first lane: what bites from now on is distinguished
        least = least_bites(self.seconds / 60, self.MINUTES_APART)
        for _ in range(TRIES_AT_THE_END * len(self.decks[name])):
            act = next(plan)
            wanted = 1 if act.kind in ONCE else least
            if self.history.bites(act.kind) < wanted and not self._end.wait(1.0):
                self._do(replace(act, late=True))

    def _do(self, act: PlannedAct) -> None:
        began = time.time()
        try:
            with self._calm(act):
                began = time.time()
                victim, bite = self._act(act)
        except (*DATABASE_DOWN, *ELASTIC_DOWN) as away:
            # A read failed because another lane's fault was just there: the act says nothing, and is no finding.
            victim, bite = act.victim, Bite(False, f"could not be read: {type(away).__name__}")
        except Exception:
            self.problems.append(f"{act.kind}: {traceback.format_exc()}")
            victim, bite = act.victim, Bite(False, "the nemesis itself fell over")
        self.history.add(act, victim, began, bite)

    def _calm(self, act: PlannedAct) -> AbstractContextManager[None]:
        if act.lane != "people":
            return self._quiet.act()
        self.people.hurried = not act.in_quiet
        return self._quiet.window() if act.in_quiet else nullcontext()

    def _act(self, act: PlannedAct) -> tuple[str, Bite]:
        if act.kind in self.workers.table:
            return self.workers.do(act)
        return act.lane, self.table(act.lane)[act.kind](act)

    def table(self, lane: str) -> Mapping[str, Callable[[PlannedAct], Bite]]:
        """What is done in a lane that is not one of the workers'."""
        tables = {"people": self.people.table, "schema": self.schema.table}
        return tables.get(lane, self.servers.table)

    def _progress(self) -> None:
        past = int(time.monotonic() - self._began)
        bitten = sum(act.bit for act in self.history.acts)
        open_, failed = self.watch.last.get("open", "?"), self.watch.last.get("failed", "?")
        self.say(
            f"{past // 60:3d}:{past % 60:02d}  {self.ledger.committed} committed, {open_} open, {failed} failed;"
            f" {bitten} of {len(self.history.acts)} acts have bitten, the last: {self._last()}"
        )

    def _last(self) -> str:
        return f"{self.history.acts[-1].kind} ({self.history.acts[-1].told})" if self.history.acts else "none yet"

    # After it

    def _last_fault(self) -> None:
        """The storm ends in a fault while the load goes on: there is a backlog when it is healed (I11)."""
        self.say("the connection to Elasticsearch is cut a last time")
        self.ground.elastic_link.cut()
        time.sleep(LAST_CUT_SECONDS)

    def _heal(self) -> None:
        self.say("healing")
        self.producer.stop()
        self.notes["backlog"] = self._backlog()
        self.servers.heal()
        self.gang.revive()
        self.notes["healed"] = time.time()
        self.watch.phase = "drain"

    def _backlog(self) -> int:
        try:
            return int(self.ground.value(OPEN))
        except DATABASE_DOWN:
            return 0

    def _drain(self) -> None:
        """All that is open is finished, then what failed is fixed and replayed: in the end everything is done."""
        began = time.monotonic()
        self.ground.refuse_malformed(False)
        self.people.end_rebuild()
        self.schema.end_move()
        self.schema.end_partitions()
        self._await_empty()
        self.notes["drain_seconds"] = round(time.monotonic() - began, 1)
        self.watch.calm = True
        for _ in range(5):
            if not self.ground.value("select count(*) from search_outbox_events where failed_at is not null"):
                break
            self.people.replay()
            self._await_empty()
        self.notes["discarded"] = self.schema.discard_drafts()
        self.say(f"drained in {self.notes['drain_seconds']} s")

    def _await_empty(self) -> None:
        if not wait(self._is_empty, DRAIN_SECONDS):
            self.problems.append(f"not drained within {DRAIN_SECONDS:g} s")

    def _is_empty(self) -> bool:
        return not self.ground.value(OPEN)

    def _coda(self) -> None:
        """A calm moment with all workers up: what they count must be what the rows went through (I13)."""
        self.watch.phase = "coda"
        self.gang.await_ready()
        counted, steps = self.gang.total("outbox_processed_total"), int(self.ground.value(DONE_STEPS))
        self.producer.start()
        time.sleep(CODA_SECONDS)
        self.producer.stop()
        self._await_empty()
        time.sleep(0.5)
        self.notes["coda_counted"] = self.gang.total("outbox_processed_total") - counted
        self.notes["coda_steps"] = int(self.ground.value(DONE_STEPS)) - steps

    def _leave(self) -> None:
        if self.lane in LANES:  # no version says what is right there: the business rows do
            truth = gaps.rows(self.ground)
            write(self.folder / "rows.ndjson", ({"_id": name, "digest": text} for name, text in truth.items()))
        self.notes["final_verify"] = asdict(self.people.verify(patience=300))
        self.notes["audit_verify"] = asdict(self.people.outbox("audit", "verify", patience=300))
        pages = {worker.label: worker.page("/metrics", 3)[1] for worker in self.gang.workers()}
        self.notes["last_workers"] = list(pages)
        self.gang.drain()
        for label, page in pages.items():
            (self.folder / "logs" / f"{label}.metrics").write_text(page, encoding="utf-8")
        self.watch.stop()
        said = [said.out + said.err for said in self.people.said]
        self.notes |= {"answers": len(said), "canary_seen": sum(CANARY in text for text in said)}
        self.notes["password_seen"] = self._password_seen(said)
        self.notes["neighbour_after"] = self.ground.neighbour()
        view = collect.VIEW if self.recipe.parts else collect.NO_VIEW
        ours = (entry.document for entry in self.ledger.entries)
        collect.collect(self.folder, self.ground.dicts, self.ground.elastic, INDEX, ours, view=view)
        write(self.folder / "writes.ndjson", self.ground.wire.rows())

    def _password_seen(self, said: list[str]) -> int:
        """In how many logs, pages and answers of commands the database's password stands."""
        password = urlsplit(self.ground.database_url).password or "?"
        logs = (path.read_text(encoding="utf-8", errors="replace") for path in (self.folder / "logs").iterdir())
        return sum(password in text for texts in (logs, said) for text in texts)

    def _about(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "recipe": self.recipe.name,
            "ingredients": in_order(self.recipe.ingredients),
            "kinds": [kind for deck in self.decks.values() for kind in dict.fromkeys(deck)],
            "minutes": round(self.seconds / 60, 2),
            "rate": self.rate,
            "commit": self.notes["commit"],
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "clock": how(),
        }

    def _ours(self) -> set[str]:
        of_parts = (PARTS[name].documents(self.recipe.ids) for name in self.recipe.parts)
        return {entry.document for entry in self.ledger.entries}.union(*of_parts)

    def _write(self) -> None:
        about = {
            **self._about(),
            "lease_seconds": LEASE_SECONDS,
            "minutes_apart": self.MINUTES_APART,
            "max_attempts": int(SETTINGS["OUTBOX_MAX_ATTEMPTS"]),
            "refused_attempts": self.producer.refused,
            **{f"{name}_swapped": pairs.swapped for name, pairs in self.producer.pairs.items()},
            "moved_types": [DRAFT] if self.producer.drafts_moved else [],
            "looks": self.watch.looks,
            "wire_targets": dict(self.ground.wire.targets),
            "wire_again": self.ground.wire.again,
            "wire_sent": self.ground.wire.sent.total(),
            "wire_strangers": sorted(self.ground.wire.documents - self._ours())[:20],
            "exit_codes": self.gang.exit_codes,
            "crashed_commands": [asdict(said) for said in self.people.crashed],
            "commands": [[list(said.command), said.code, last_line(said)] for said in self.people.said],
            "quiet_windows": self._quiet.windows,
            "problems": self.problems,
            **self.notes,
        }
        (self.folder / "about.json").write_text(json.dumps(about, indent=1, default=str), encoding="utf-8")
        self.history.close()
