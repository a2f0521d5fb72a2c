"""Registers workers, takes back what dead ones held, and reads what operators have said. Moves no healthy lease."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import psycopg

from outbox.policy.event import MOST_ABANDONED
from outbox.policy.outcome import Reason, detail_without_reply
from outbox.policy.redact import fingerprint
from outbox.ports import ControlRow, Holder, Other, Reclaim, Sweep
from outbox.store.pool import BY_INDEX, Database, QueryCancelled, TopicStore, is_refusal, plan_with

RECLAIM_KEY = 7_306_240_311  # one number for the whole product: only one process reclaims at a time
SUSPECT_ERROR = (
    "crash_suspect: its worker died three times while it was claimed alone. "
    "Check the payload and the worker's last log lines before a replay"
)
SWEEP_TIMEOUT_MS = 5_000  # a page; 10,000 rows that are not in memory take a second
SWEEP_SECONDS = 1.0  # then the reclaimer has other things to do, and the sweep goes on at its next pass
ROWS_A_PAGE = 10_000
LEAST_PAGE = 100
SWEEPS = ("sweep_fresh", "sweep_due", "sweep_suspects")
START: dict[str, Any] = {"seq": -(2**63), "at": "-infinity", "abandoned": 0, "id": UUID(int=0)}


class Workers(TopicStore, topic="workers"):
    """One worker's own entry, and what it reads of the others."""

    def __init__(self, database: Database, *, worker_id: str, start_id: UUID) -> None:
        super().__init__(database)
        self._me = {"worker_id": worker_id, "start_id": start_id}

    def register(self, about: dict[str, Any], dead_start_id: UUID | None) -> bool:
        """False = another process holds this id and beats."""
        projects = orjson.dumps(about["projects"]).decode() if "projects" in about else None
        parameters = {**self._me, **about, "projects": projects, "dead_start_id": dead_start_id}
        return self._one("register", **parameters) is not None

    def holder(self) -> Holder | None:
        row = self._one("holder", **self._me)
        return None if row is None else Holder(*row)

    def others(self) -> list[Other]:
        rows = self._all("others", **self._me)
        return [Other(orjson.loads(projects), worker, Holder(*row)) for projects, worker, *row in rows]

    def beat(self, state: str, server: str | None = None) -> bool:
        return self._one("beat", **self._me, state=state, server=server) is not None

    def leave(self) -> None:
        self._run("leave", **self._me)

    def controls(self) -> list[ControlRow]:
        return [ControlRow(*row) for row in self._all("controls")]

    def version_known(self, entity_type: str, entity_id: str, version: int, timeout_ms: int) -> bool | None:
        """With a time limit: without an entity index this may read many rows. None: it could not tell in time."""
        parameters = {"entity_type": entity_type, "entity_id": entity_id, "version": version}
        try:
            with self._database.transaction(read_only=True, timeout_ms=timeout_ms) as connection:
                row = connection.execute(self._typed("version_known", connection), parameters).fetchone()
                return bool(row and row[0])
        except QueryCancelled:
            return None


class Reclaims(TopicStore, topic="workers"):
    """Takes back rows whose lease has run out. Reads the leases only: a million pending rows cost it nothing."""

    def __init__(self, database: Database, *, max_processing_seconds: float, rows_a_step: int) -> None:
        super().__init__(database)
        self._max_processing = timedelta(seconds=max_processing_seconds)
        self._rows_a_step = rows_a_step
        self._scan, self._place, self._rows_a_page = 0, START, ROWS_A_PAGE

    def step(self, is_dead: Callable[[tuple[Any, ...]], bool]) -> Reclaim:
        """At most so many rows, in one short transaction. Nothing found, or another process at it: zeros."""
        with self._database.connection() as connection, connection.transaction():
            locked = connection.execute(self._sql["reclaim_lock"], {"key": RECLAIM_KEY}).fetchone()
            if not locked or not locked[0]:
                return Reclaim(0, 0, 0)
            parameters = {"max_processing": self._max_processing, "limit": 20}
            rows = abandoned = failed = refused = 0
            for lease in connection.execute(self._sql["expired_leases"], parameters).fetchall():
                dead = is_dead(lease[1:])
                n, gone, stuck = self._of_lease(connection, lease, dead, self._rows_a_step - rows)
                rows, failed, abandoned = rows + n, failed + gone, abandoned + (n if dead else 0)
                refused += stuck
                if rows >= self._rows_a_step:
                    break
            return Reclaim(rows, abandoned, failed, refused)

    def _of_lease(
        self, connection: psycopg.Connection[Any], lease: tuple[Any, ...], dead: bool, limit: int
    ) -> tuple[int, int, int]:
        """(rows, failed, refused). Where the database refuses the whole, row by row: what it will not have at all is
        put off with its lease, and holds up no other."""
        token, _, size = lease[:3]
        taken = self._try(connection, token, dead, limit)
        if taken is not None:
            return *taken, 0
        rows = failed = refused = 0
        for _ in range(min(size, limit)):
            one = self._try(connection, token, dead, 1)
            if one is None:
                connection.execute(self._sql["put_last"], {"token": token})
                refused += 1
            else:
                rows, failed = rows + one[0], failed + one[1]
        connection.execute(self._sql["put_off"], {"token": token, "refused": refused})
        return rows, failed, refused

    def _try(self, connection: psycopg.Connection[Any], token: UUID, dead: bool, limit: int) -> tuple[int, int] | None:
        try:
            with connection.transaction():
                return self._take_back(connection, token, dead, limit)
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            return None

    def _take_back(self, connection: psycopg.Connection[Any], token: UUID, dead: bool, limit: int) -> tuple[int, int]:
        parameters = {
            "token": token,
            "limit": limit,
            "abandoned": int(dead),
            "most": MOST_ABANDONED,
            "suspect_error": SUSPECT_ERROR,
            "suspect_fingerprint": fingerprint(Reason.CRASH_SUSPECT, SUSPECT_ERROR),
            "suspect_detail": orjson.dumps(detail_without_reply(Reason.CRASH_SUSPECT, SUSPECT_ERROR)).decode(),
        }
        row = connection.execute(self._sql["reclaim"], parameters).fetchone()
        connection.execute(self._sql["close_lease"], {"token": token})
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def sweep(self) -> Sweep:
        """Rows set to `processing` by hand have no lease. Walks through all open rows by their indexes, page by page,
        and goes on where the last call stopped: millions of them hold up nobody, and none is left out."""
        rows, ends = 0, time.monotonic() + SWEEP_SECONDS
        while time.monotonic() < ends:
            try:
                found = self._page()
            except QueryCancelled:
                self._rows_a_page = max(LEAST_PAGE, self._rows_a_page // 4)
                return Sweep(rows, finished=False, limited=True)
            if found is not None:
                rows += found
            else:
                self._place, self._scan = START, (self._scan + 1) % len(SWEEPS)
                if not self._scan:
                    return Sweep(rows, finished=True)
        return Sweep(rows, finished=False)

    def _page(self) -> int | None:
        """None: there is nothing behind this place."""
        with self._database.transaction(timeout_ms=SWEEP_TIMEOUT_MS) as connection:
            plan_with(connection, BY_INDEX)
            named = {**self._place, "page": self._rows_a_page}
            row = connection.execute(self._sql[SWEEPS[self._scan]], named).fetchone()
        if row is None:
            return None
        self._place = dict(zip(START, row[1:], strict=True))
        return int(row[0])
