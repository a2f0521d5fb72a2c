"""Owns what people do meanwhile, by the commands that they type: replay, prune, verify, rebuild. It hurries nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs.addresses import PEOPLE, known_as
from labs.worker import ROOT, environment
from tests.nemesis.bite import Bite
from tests.nemesis.gang import SETTINGS
from tests.nemesis.ground import DATABASE_DOWN, ELASTIC_DOWN, INDEX, Ground
from tests.nemesis.schedule import PlannedAct
from tests.nemesis.waiting import wait

PATIENCE_SECONDS = 45.0
UNHURRIED_SECONDS = 90.0  # in a quiet window
MAPPING = {
    "properties": {
        "title": {"type": "text"},
        "content": {"type": "text"},
        "kind": {"type": "keyword"},
        "revision": {"type": "long", "ignore_malformed": True},
        "notes": {"type": "text"},
        "tags": {"type": "keyword"},
    }
}
# What a command may leave with while servers are down: partly done, refused for now, a server is down.
EXCUSED = {0, 1, 3, 75}


@dataclass(frozen=True, slots=True)
class Said:
    command: tuple[str, ...]
    code: int | None  # None: took too long, and was killed with -9
    out: str
    err: str


@dataclass
class People:
    ground: Ground
    folder: Path
    stop: threading.Event
    patience: float = PATIENCE_SECONDS
    compared: str | None = None  # the entity type; left out: all
    hurried: bool = True
    said: list[Said] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mapping = self.folder / "mapping.json"
        self._mapping.write_text(json.dumps(MAPPING), encoding="utf-8")
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "replay": self._replay,
            "prune": self._prune,
            "verify": self._verify,
            "rebuild": self._rebuild,
            "repair": self._repair,
            "backfill": self._backfill,
            "refresh": self._refresh,
        }

    def outbox(self, *arguments: str, patience: float | None = None) -> Said:
        """A command that takes too long is killed with -9, as an impatient person does it."""
        argv = [sys.executable, "-m", "outbox", *arguments]
        road = self.ground.road()
        road["DATABASE_URL"] = known_as(PEOPLE, road["DATABASE_URL"])
        # A person's shell may have another time zone than the daemons: documents must not differ by it.
        env = environment({**SETTINGS, **road, "PGTZ": "Asia/Tokyo"})
        process = subprocess.Popen(
            argv, env=env, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            usual = self.patience if self.hurried else max(self.patience, UNHURRIED_SECONDS)
            out, err = process.communicate(timeout=patience or usual)
            said = Said(arguments, process.returncode, out, err)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            said = Said(arguments, None, out, err)
        self.said.append(said)
        return said

    @property
    def crashed(self) -> list[Said]:
        """Commands that fell over instead of saying what was wrong."""
        return [
            said
            for said in self.said
            if "a bug of ours" in said.err or "Traceback" in said.err or said.code not in {None, 2, 78, *EXCUSED}
        ]

    # One act each

    def _replay(self, act: PlannedAct) -> Bite:
        """Sometimes the cause is fixed first: then old events come after newer ones of their entity."""
        fixed = act.size < 0.6
        self._wait_for(self._any_failed, 10)
        with_mapping = self._try(lambda: self.ground.refuse_malformed(not fixed))
        moved = self.replay()
        self._try(lambda: self.ground.refuse_malformed(True))
        told = f"{moved} events replayed, the mapping {'fixed' if fixed and with_mapping else 'as it was'}"
        return Bite(moved > 0, told, {"events": moved})

    def replay(self) -> int:
        """With an id of its own, given again when the answer was lost: nothing may happen twice."""
        before = self._replayed()
        client = uuid.uuid4().hex
        for _ in range(2):
            said = self.outbox(
                "replay", "--by", "nemesis", "--reason", "try again", "--limit", "500", "--client-id", client, "--yes"
            )
            if said.code == 0:
                break
        return self._replayed() - before

    def _replayed(self) -> int:
        query = "select count(*) from recorded_steps where old_status = 'failed' and new_status = 'pending'"
        return int(self._ask(lambda: self.ground.value(query)) or 0)

    def _prune(self, _: PlannedAct) -> Bite:
        said = self.outbox("prune", "--older-than-days", "0.00006", "--by", "nemesis", "--yes", "--json")
        removed = int(_json(said).get("removed", 0))
        return Bite(removed > 0, f"{removed} events removed (exit {said.code})", {"events": removed})

    def _verify(self, _: PlannedAct) -> Bite:
        self._wait_for(self.ground.elastic_answers, 40)
        said = self.verify()
        looked = _json(said)
        finished = said.code in (0, 1, 3) and bool(looked)
        return Bite(finished, f"exit {said.code}: {looked.get('sentence') or last_line(said)}")

    def verify(self, patience: float | None = None) -> Said:
        of_type = ("--type", self.compared) if self.compared else ()
        return self.outbox("verify", *of_type, "--rate", "0", "--json", patience=patience)

    def _repair(self, _: PlannedAct) -> Bite:
        return self._whole(
            "repair", "--rate", "0", "--compare-rate", "0", "--expect-deletes", "10000", "--yes", "--json"
        )

    def _backfill(self, _: PlannedAct) -> Bite:
        said = self._whole("backfill")
        return said if said.bit else self._whole("backfill", "--resume")

    def _refresh(self, _: PlannedAct) -> Bite:
        return self._whole("refresh", "--all", "--rate", "0", "--yes")

    def _whole(self, *command: str) -> Bite:
        """One that writes all over the index, or all over the table; it bit when it came to its end."""
        self._wait_for(self.ground.elastic_answers, 40)
        said = self.outbox(*command, "--by", "nemesis")
        return Bite(said.code in (0, 3), f"exit {said.code}: {last_line(said)}")

    def _rebuild(self, _: PlannedAct) -> Bite:
        """A new index beside the old one, in the middle of it all; what was cut short is taken up again, or ended. It
        bit when one came to its end, be it one that an earlier act had begun."""
        self._wait_for(self.ground.elastic_answers, 40)
        before = self._rebuilt()
        begin = ("--mapping", str(self._mapping))
        said = self.outbox("rebuild", *begin, "--yes", "--rate", "0", "--by", "nemesis")
        for _again in range(2):
            if said.code != 0 and not self.stop.is_set():
                wish = ("--resume",) if self._rebuild_open() else begin
                said = self.outbox("rebuild", *wish, "--yes", "--rate", "0", "--by", "nemesis")
        for _again in range(2):
            if said.code == 0 and self._rebuild_open():
                self.outbox("rebuild", "--finish", "--yes", "--by", "nemesis")
        if said.code != 0 and not self.stop.is_set():
            self.outbox("rebuild", "--cancel", "--yes", "--by", "nemesis")
        self._try(lambda: self.ground.refuse_malformed(True))
        done = self._rebuilt() > before
        return Bite(done, "alias swapped, old index removed" if done else f"cut short ({said.code}): {last_line(said)}")

    def _rebuilt(self) -> int:
        query = "select count(*) from search_outbox_rebuilds where status = 'finished'"
        return int(self._ask(lambda: self.ground.value(query)) or 0)

    def end_rebuild(self) -> None:
        """After the storm: what was begun is cancelled, or finished if its alias was swapped. One that came to its end
        now would bring right what the storm had left wrong, before anyone judged it."""
        for wish in ("--cancel", "--finish"):
            if not self._rebuild_open():
                return
            self.outbox("rebuild", wish, "--yes", "--by", "nemesis", patience=90)

    def _rebuild_open(self) -> bool:
        query = "select exists (select from search_outbox_rebuilds where status in ('running', 'swapped', 'broken'))"
        return bool(self._ask(lambda: self.ground.value(query)))

    def behind_alias(self) -> list[str]:
        return sorted(self.ground.elastic.indices.get_alias(name=INDEX))

    # Servers may be down

    def _wait_for(self, look: Callable[[], bool], seconds: float) -> None:
        """Nobody starts a rebuild on a server that is not there; nobody replays nothing."""
        wait(look, seconds, every=0.2, stop=self.stop)

    def _any_failed(self) -> bool:
        query = "select exists (select from search_outbox_events where failed_at is not null)"
        return bool(self._ask(lambda: self.ground.value(query)))

    def _try(self, act: Callable[[], Any]) -> bool:
        try:
            act()
        except ELASTIC_DOWN:
            return False
        return True

    def _ask(self, look: Callable[[], Any]) -> Any:
        found = wait(lambda: [look()], 20, every=0.2, excused=DATABASE_DOWN)
        return found[0] if found else None


def _json(said: Said) -> dict[str, Any]:
    try:
        found = json.loads(said.out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def last_line(said: Said) -> str:
    lines = [line for line in (said.err or said.out).strip().splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
