"""Owns what is done to tables, view and declarations: a type moves to the view, partitions come and go, the view is
away or materialised for a moment, the sequence of versions falls back. Each measures whether it bit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import LiteralString

import psycopg

from tests.nemesis.attached import PARTITIONS
from tests.nemesis.bite import Bite
from tests.nemesis.ground import DATABASE_DOWN, Ground
from tests.nemesis.load import DRAFT, Producer
from tests.nemesis.people import People
from tests.nemesis.schedule import PlannedAct

# A statement that waits longer for its table gives way and is tried again: writers queue behind it.
PATIENT = "-c lock_timeout=1500"
TRY_SECONDS = 15.0
FALL = 400  # versions, of some thousands per minute
FROZEN_VIEW: LiteralString = "create materialized view search_documents as select * from search_documents_kept"
KEPT: LiteralString = "select kept_by = 'view' and not moving from search_outbox_entity_types where entity_type = %s"
FELL: LiteralString = (
    "select setval('search_outbox_version', greatest(1, (select last_value from search_outbox_version) - %s))"
)
WAITED: LiteralString = "select count(*) from recorded_steps where at > to_timestamp(%s) and new_status = 'done'"


class SchemaFaults:
    def __init__(self, ground: Ground, people: People, producer: Producer, stop: threading.Event) -> None:
        self._ground = ground
        self._people = people
        self._producer = producer
        self._stop = stop
        self._partitions_right = True
        self.table: dict[str, Callable[[PlannedAct], Bite]] = {
            "move": self._move,
            "partition": self._partition,
            "view_away": self._take_view_away,
            "view_frozen": self._freeze_view,
            "sequence_back": self._set_back,
        }

    # A type moves from payloads to the view

    def _move(self, act: PlannedAct) -> Bite:
        """Its producers write refreshes from now on, and a person says so. Events from before may fail then."""
        already = self._is_moved()
        with self._producer.drafting:
            self._producer.drafts_moved = True
        said = self._people.outbox("types", "set", DRAFT, "view", *self._by("documents join tables now"))
        moved = self._is_moved()
        told = f"exit {said.code}, {'moved' if moved else 'not yet moved'}{' before' if already else ''}"
        return Bite(moved, told)

    def _is_moved(self) -> bool:
        try:
            return bool(self._ground.value(KEPT, [DRAFT]))
        except DATABASE_DOWN:
            return False

    def end_move(self) -> None:
        """After the storm: one that was begun is brought to its end, by the command that began it."""
        while self._producer.drafts_moved and not self._is_moved():
            self._people.outbox("types", "set", DRAFT, "view", *self._by("once more"), patience=120)

    def discard_drafts(self) -> int:
        """Payloads from before the move that failed after it: a replay fails again, as it should; a person ends it."""
        if not self._producer.drafts_moved:
            return 0
        query: LiteralString = (
            "select count(*) from search_outbox_events where failed_at is not null and entity_type = 'draft'"
            " and op = 'upsert'"
        )
        found = int(self._ground.value(query))
        if found:
            by = ("--by", "nemesis", "--approved-by", "another", "--reason", "the view keeps them", "--yes")
            self._people.outbox("flush", "--entity-type", DRAFT, "--expect", str(found), *by)
            time.sleep(5.5)
            self._people.outbox("prune", "--older-than-days", "0.00006", "--by", "nemesis", "--yes")
        return found

    # Partitions

    def _partition(self, act: PlannedAct) -> Bite:
        """Detached, changed while nobody sees it, attached; after each the commands of docs/producers.md."""
        n = act.number % PARTITIONS
        self._partitions_right = False
        if not self._change(f"alter table nemesis_parcels detach partition nemesis_parcels_{n}"):
            return Bite(False, "the table was locked")
        first = self._people.outbox("repair", "--type", "parcel", "--rate", "0", "--by", "nemesis", "--yes", "--json")
        rows = self._change(f"update nemesis_parcels_{n} set title = title || ' changed apart'")
        attached = self._attach(n)
        done = [first.code, *((attached and self._renew_parcels()) or [None])]
        self._partitions_right = done == [0, 0, 0]
        return Bite(attached, f"partition {n} with {rows or 0} rows, commands ended with {done}")

    def _attach(self, n: int) -> bool:
        bound = f"for values with (modulus {PARTITIONS}, remainder {n})"
        return bool(self._change(f"alter table nemesis_parcels attach partition nemesis_parcels_{n} {bound}"))

    def _renew_parcels(self) -> list[int | None]:
        attach = self._people.outbox("attach", "nemesis_parcels", "--type", "parcel", "--id", "id")
        return [attach.code, self._people.outbox("backfill", "--type", "parcel", "--by", "nemesis").code]

    def end_partitions(self) -> None:
        """After the storm: only what was cut short. Complete commands of the storm must have been enough."""
        if self._partitions_right or not self._ground.recipe.has("parcels"):
            return
        for n in range(PARTITIONS):
            query: LiteralString = "select relispartition from pg_class where relname = %s"
            if not self._ground.value(query, [f"nemesis_parcels_{n}"]):
                self._attach(n)
        self._people.outbox("attach", "nemesis_parcels", "--type", "parcel", "--id", "id")
        self._people.outbox("refresh", "--type", "parcel", "--all", *("--rate", "0", "--by", "nemesis", "--yes"))
        self._people.outbox("repair", "--type", "parcel", "--rate", "0", "--by", "nemesis", "--yes")

    # The view

    def _take_view_away(self, act: PlannedAct) -> Bite:
        """As a migration that was not written well does it. Events wait."""
        return self._without_view("away", act)

    def _freeze_view(self, act: PlannedAct) -> Bite:
        """What it says is of a moment; no event may be done by it."""
        return self._without_view(
            "materialised", act, put=(FROZEN_VIEW,), away=("drop materialized view search_documents",)
        )

    def _without_view(
        self, how: str, act: PlannedAct, *, put: tuple[str, ...] = (), away: tuple[str, ...] = ()
    ) -> Bite:
        if not self._change("alter view search_documents rename to search_documents_kept", *put):
            return Bite(False, "the view was locked")
        began = time.time()
        try:
            self._stop.wait(2 + 4 * act.size)
        finally:
            while not self._change(*away, "alter view search_documents_kept rename to search_documents"):
                time.sleep(0.2)
        with contextlib.suppress(*DATABASE_DOWN):
            done = int(self._ground.value(WAITED, [began]))
            return Bite(True, f"{how} for {time.time() - began:.1f} s, {done} events done meanwhile")
        return Bite(True, f"{how} for {time.time() - began:.1f} s")

    # The sequence

    def _set_back(self, act: PlannedAct) -> Bite:
        """As after a restore: the index holds versions that the sequence has not given out."""
        last = int(self._ground.value(FELL, [int(FALL * (0.5 + act.size))]))
        mark = time.time()
        self._stop.wait(1.0)
        return Bite(True, f"set back to {last} at {mark:.0f}")

    def _by(self, reason: str) -> tuple[str, ...]:
        return ("--by", "nemesis", "--reason", reason, "--yes")

    def _change(self, *statements: str) -> int | None:
        """Rows of the last statement, at least 1; None if its table was locked or the server away."""
        deadline = time.monotonic() + TRY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.errors.LockNotAvailable, *DATABASE_DOWN):
                with self._ground.connect(options=PATIENT) as connection, connection.transaction():
                    rows = 0
                    for statement in statements:
                        rows = connection.execute(statement.encode()).rowcount
                return max(1, rows)
            time.sleep(0.3)
        return None
