"""Keeps rebuilds, backfills and verifications: who works on one, how far it is, what was found. Decides nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import Connection

from outbox.policy.audit import Entry
from outbox.policy.drift import DriftReport, totals
from outbox.policy.reindex import BackfillRun, LastVerification, Rebuild
from outbox.ports import Mirroring, Refusal
from outbox.reindex.parts import PartsProgress
from outbox.store import audit
from outbox.store.pool import Database, fetch_row
from outbox.store.queries import queries

LEASE: Final = timedelta(seconds=15)


class PostgresMirrors:
    """One worker's side: what to mirror to, and its answer."""

    def __init__(self, database: Database, *, worker_id: str, start_id: UUID) -> None:
        self._database = database
        self._me = {"worker_id": worker_id, "start_id": start_id}
        self._sql = queries("rebuilds")

    def mirroring(self) -> Mirroring | None:
        row = self._database.fetch_one(self._sql["mirroring"])
        return None if row is None else Mirroring(row[0], row[1], row[2], tuple(row[3]))

    def confirm(self, revision: int) -> None:
        self._database.execute(self._sql["confirm"], {**self._me, "revision": revision})

    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        with self._database.connection() as connection:
            note_refusals(connection, rebuild, refusals, count)

    def give_up(self, mirroring: Mirroring, why: str) -> bool:
        """True for the first who says so."""
        named = {"id": mirroring.rebuild, "revision": mirroring.revision, "why": why[:2000]}
        return self._database.fetch_one(self._sql["give_up"], named) is not None


class PostgresRebuilds:
    """The worker-bench of `outbox rebuild`: `owner` names this process; its lease keeps others away."""

    def __init__(self, database: Database, *, owner: str) -> None:
        self._database = database
        self._owner = owner
        self._sql = queries("rebuilds")

    def begin(self, **about: object) -> Rebuild | None:
        """None: one that is not over is in the way."""
        with self._database.transaction() as connection:
            for name in ("mapping", "options"):
                about[name] = orjson.dumps(about[name]).decode()
            named = {**about, "owner": self._owner, "lease": LEASE}
            row = connection.execute(self._sql["begin"], named).fetchone()
        return self.newest() if row is not None else None

    def newest(self) -> Rebuild | None:
        return self._one("newest", {})

    def lately(self, limit: int) -> Sequence[Rebuild]:
        return [_rebuild(row) for row in self._database.rows(self._sql["lately"], {"limit": limit})]

    def take(self, id: int, dead_owner: str | None = None) -> Rebuild | None:
        """None: a living process works on it."""
        return self._one("take", {"id": id, "owner": self._owner, "dead_owner": dead_owner, "lease": LEASE})

    def renew(self, id: int) -> bool:
        named = {"id": id, "owner": self._owner, "lease": LEASE}
        return self._database.fetch_one(self._sql["renew"], named) is not None

    def let_go(self, id: int) -> None:
        self._database.execute(self._sql["let_go"], {"id": id, "owner": self._owner})

    def advance(
        self,
        rebuild: Rebuild,
        step: str,
        status: str | None = None,
        *,
        mirrors: Sequence[str] | None = None,
        reset: bool = False,
        verification_id: int | None = None,
        error: str | None = None,
        entries: Sequence[Entry] = (),
    ) -> Rebuild | None:
        """The next step, with its audit in the same transaction. None: it is no longer what this process thinks."""
        named = {
            "id": rebuild.id,
            "owner": self._owner,
            "from_step": rebuild.step,
            "from_status": rebuild.status,
            "step": step,
            "status": status or rebuild.status,
            "mirrors": None if mirrors is None else list(mirrors),
            "reset": reset,
            "verification_id": verification_id,
            "error": error,
        }
        with self._database.transaction() as connection:
            row = fetch_row(connection, self._sql["advance"], named)
            if row is not None:
                audit.write(connection, entries)
            if row is not None and reset:
                connection.execute(queries("rebuild_parts")["clear"], {"work": "rebuild", "work_id": rebuild.id})
        return None if row is None else _rebuild(row)

    def wrote_page(self, id: int, cursor: Mapping[str, Any], written: int) -> int | None:
        """How many documents were refused so far; None: it was cancelled, ended by a daemon or taken over."""
        named = {"id": id, "owner": self._owner, "lease": LEASE, "written": written}
        named["cursor"] = orjson.dumps(cursor).decode()
        row = self._database.fetch_one(self._sql["wrote_page"], named)
        return None if row is None else int(row[0])

    def gather(self, id: int, written: int) -> int | None:
        """The same for a rebuild in parts: how many all of them have written."""
        named = {"id": id, "owner": self._owner, "lease": LEASE, "written": written}
        row = self._database.fetch_one(self._sql["gather"], named)
        return None if row is None else int(row[0])

    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        with self._database.connection() as connection:
            note_refusals(connection, rebuild, refusals, count)

    def give_up(self, rebuild: Rebuild, why: str) -> None:
        named = {"id": rebuild.id, "revision": rebuild.revision, "why": why[:2000]}
        self._database.execute(self._sql["give_up"], named)

    # Waiting for the daemons

    def unconfirmed(self, revision: int) -> Sequence[str]:
        return [row[0] for row in self._database.fetch_all(self._sql["unconfirmed"], {"revision": revision})]

    def now(self) -> datetime:
        row = self._database.fetch_one(self._sql["now"])
        assert row is not None
        moment: datetime = row[0]
        return moment

    def older_leases(self, moment: datetime) -> Sequence[tuple[str, int]]:
        rows = self._database.fetch_all(self._sql["older_leases"], {"moment": moment})
        return [(row[0], row[1]) for row in rows]

    def _one(self, query: str, named: Mapping[str, object]) -> Rebuild | None:
        with self._database.transaction() as connection:
            row = fetch_row(connection, self._sql[query], named)
        return None if row is None else _rebuild(row)


def note_refusals(connection: Connection[Any], rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
    told = orjson.dumps([refusal._asdict() for refusal in refusals]).decode()
    connection.execute(queries("rebuilds")["note_refusals"], {"id": rebuild, "refusals": told, "count": count})


def _rebuild(row: dict[str, Any]) -> Rebuild:
    parsed = {name: None if row[name] is None else orjson.loads(row[name]) for name in _JSON}
    return Rebuild(**{**row, **parsed, "mirrors": tuple(row["mirrors"])})


_JSON: Final = ("mapping", "cursor", "refusals", "options")


class PostgresBackfills:
    """`owner` names this process; its lease keeps others away."""

    def __init__(self, database: Database, *, owner: str) -> None:
        self._database = database
        self._me = {"owner": owner, "lease": LEASE}
        self._sql = queries("backfills")

    def begin(self, dead_owner: str | None, **about: object) -> BackfillRun | None:
        """None: another one is at work."""
        return self._one("begin", {**about, "dead_owner": dead_owner})

    def newest(self) -> BackfillRun | None:
        return self._one("newest", {})

    def take(self, id: int, dead_owner: str | None) -> BackfillRun | None:
        """None: a living process works on it."""
        return self._one("take", {"id": id, "dead_owner": dead_owner})

    def wrote_page(
        self, id: int, cursor: Mapping[str, Any] | None, written: int, newer: int, refusals: Sequence[Refusal]
    ) -> bool:
        """False: someone else has taken it over."""
        named: dict[str, object] = {**self._me, "id": id, "written": written, "newer": newer, "refused": len(refusals)}
        named["cursor"] = None if cursor is None else orjson.dumps(cursor).decode()
        named["refusals"] = orjson.dumps([refusal._asdict() for refusal in refusals[:100]]).decode()
        return self._database.fetch_one(self._sql["wrote_page"], named) is not None

    def gather(self, id: int, now: PartsProgress) -> bool:
        """The same for a backfill in parts: what all of them have done."""
        named = {**self._me, "id": id, "written": now.written, "newer": now.newer, "refused": now.refused}
        return self._database.fetch_one(self._sql["gather"], named) is not None

    def note_refusals(self, id: int, refusals: Sequence[Refusal]) -> None:
        """By a process that works on a part; the count is in its part."""
        told = orjson.dumps([refusal._asdict() for refusal in refusals[:100]]).decode()
        self._database.execute(self._sql["note_refusals"], {"id": id, "refusals": told})

    def end(self, id: int, status: str, error: str | None = None, entries: Sequence[Entry] = ()) -> None:
        with self._database.transaction() as connection:
            connection.execute(self._sql["end"], {**self._me, "id": id, "status": status, "error": error})
            audit.write(connection, entries)

    def _one(self, query: str, named: Mapping[str, object]) -> BackfillRun | None:
        with self._database.transaction() as connection:
            row = fetch_row(connection, self._sql[query], {**self._me, **named})
        if row is None:
            return None
        parsed = {name: None if row[name] is None else orjson.loads(row[name]) for name in ("cursor", "refusals")}
        return BackfillRun(**{**row, **parsed, "entity_types": tuple(row["entity_types"])})


Row = Mapping[str, Any]


class PostgresVerifications:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries("verifications")

    def begin(self, **about: object) -> int:
        with self._database.transaction() as connection:
            row = connection.execute(self._sql["begin"], about).fetchone()
            assert row is not None
            return int(row[0])

    def counts(self, id: int, report: DriftReport, status: str = "running", error: str | None = None) -> None:
        over = status != "running"
        named = {
            "id": id,
            "status": status,
            "compared": report.compared,
            "unreadable": report.unreadable,
            "in_flux": report.in_flux,
            "report": orjson.dumps(report.as_json()).decode() if over else None,
            "error": error,
            **totals(report),
        }
        with self._database.transaction() as connection:
            connection.execute(self._sql["counts"], named)

    def lately(self, limit: int) -> Sequence[Row]:
        return [_parsed(row) for row in self._database.rows(self._sql["lately"], {"limit": limit})]

    def last_finished(self, targets: Sequence[str]) -> LastVerification | None:
        """Of a comparison of just these targets, whole or by sample."""
        row = self._database.fetch_one(self._sql["last_finished"], {"target": ", ".join(targets)})
        if row is None:
            return None
        id, compared, missing, stale, orphaned, different, unknown, finished_at, took = row
        drift = {
            "missing": missing,
            "stale": stale,
            "orphaned": orphaned,
            "different": different,
            "unknown": unknown,
        }
        return LastVerification(id, compared, drift, finished_at, took)


def _parsed(row: dict[str, Any]) -> Row:
    report = row["report"]
    return {**row, "report": None if report is None else orjson.loads(report)}
