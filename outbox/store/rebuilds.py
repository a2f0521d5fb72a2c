"""Keeps rebuilds: what daemons mirror to and confirm, and the one row that moves from step to step. Decides nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import Connection
from psycopg.rows import dict_row

from outbox.policy.audit import Entry
from outbox.policy.rebuild import Rebuild
from outbox.ports import Mirroring, Refusal
from outbox.store import audit
from outbox.store.pool import Database
from outbox.store.queries import queries

LEASE: Final = timedelta(seconds=15)


class PostgresMirrors:
    """One worker's side: what to mirror to, and its answer."""

    def __init__(self, database: Database, *, worker_id: str, start_id: UUID) -> None:
        self._database = database
        self._me = {"worker_id": worker_id, "start_id": start_id}
        self._sql = queries("rebuilds")

    def mirroring(self) -> Mirroring | None:
        with self._database.connection() as connection:
            row = connection.execute(self._sql["mirroring"]).fetchone()
        return None if row is None else Mirroring(row[0], row[1], row[2], tuple(row[3]))

    def confirm(self, revision: int) -> None:
        with self._database.connection() as connection:
            connection.execute(self._sql["confirm"], {**self._me, "revision": revision})

    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        with self._database.connection() as connection:
            note_refusals(connection, rebuild, refusals, count)

    def give_up(self, mirroring: Mirroring, why: str) -> bool:
        """True for the first who says so."""
        named = {"id": mirroring.rebuild, "revision": mirroring.revision, "why": why[:2000]}
        with self._database.connection() as connection:
            return connection.execute(self._sql["give_up"], named).fetchone() is not None


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
        with self._database.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return [_rebuild(row) for row in cursor.execute(self._sql["lately"], {"limit": limit}).fetchall()]

    def take(self, id: int, dead_owner: str | None = None) -> Rebuild | None:
        """None: a living process works on it."""
        return self._one("take", {"id": id, "owner": self._owner, "dead_owner": dead_owner, "lease": LEASE})

    def renew(self, id: int) -> bool:
        with self._database.connection() as connection:
            named = {"id": id, "owner": self._owner, "lease": LEASE}
            return connection.execute(self._sql["renew"], named).fetchone() is not None

    def let_go(self, id: int) -> None:
        with self._database.connection() as connection:
            connection.execute(self._sql["let_go"], {"id": id, "owner": self._owner})

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
            with connection.cursor(row_factory=dict_row) as cursor:
                row = cursor.execute(self._sql["advance"], named).fetchone()
            if row is not None:
                audit.write(connection, entries)
        return None if row is None else _rebuild(row)

    def wrote_page(self, id: int, cursor: Mapping[str, Any], written: int) -> int | None:
        """How many documents were refused so far; None: it was cancelled, given up or taken over."""
        named = {"id": id, "owner": self._owner, "lease": LEASE, "written": written}
        named["cursor"] = orjson.dumps(cursor).decode()
        with self._database.connection() as connection:
            row = connection.execute(self._sql["wrote_page"], named).fetchone()
            return None if row is None else int(row[0])

    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        with self._database.connection() as connection:
            note_refusals(connection, rebuild, refusals, count)

    def give_up(self, rebuild: Rebuild, why: str) -> None:
        named = {"id": rebuild.id, "revision": rebuild.revision, "why": why[:2000]}
        with self._database.connection() as connection:
            connection.execute(self._sql["give_up"], named)

    # Waiting for the daemons

    def unconfirmed(self, revision: int) -> Sequence[str]:
        with self._database.connection() as connection:
            return [row[0] for row in connection.execute(self._sql["unconfirmed"], {"revision": revision}).fetchall()]

    def now(self) -> datetime:
        with self._database.connection() as connection:
            row = connection.execute(self._sql["now"]).fetchone()
            assert row is not None
            moment: datetime = row[0]
            return moment

    def older_leases(self, moment: datetime) -> Sequence[tuple[str, int]]:
        with self._database.connection() as connection:
            rows = connection.execute(self._sql["older_leases"], {"moment": moment}).fetchall()
            return [(row[0], row[1]) for row in rows]

    def _one(self, query: str, named: Mapping[str, object]) -> Rebuild | None:
        with self._database.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(self._sql[query], named).fetchone()
        return None if row is None else _rebuild(row)


def note_refusals(connection: Connection[Any], rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
    told = orjson.dumps([refusal._asdict() for refusal in refusals]).decode()
    connection.execute(queries("rebuilds")["note_refusals"], {"id": rebuild, "refusals": told, "count": count})


def _rebuild(row: dict[str, Any]) -> Rebuild:
    parsed = {name: None if row[name] is None else orjson.loads(row[name]) for name in _JSON}
    return Rebuild(**{**row, **parsed, "mirrors": tuple(row["mirrors"])})


_JSON: Final = ("mapping", "cursor", "refusals", "options")
