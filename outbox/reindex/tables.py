"""Keeps rebuilds, backfills and verifications: who works on one, how far it is, what was found. Decides nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from outbox.policy.audit import Actor, Entry, Source
from outbox.policy.drift import DriftReport
from outbox.policy.reindex import BackfillRun, LastVerification, Rebuild
from outbox.ports import Mirroring, Refusal
from outbox.store import audit
from outbox.store.events import catch_up
from outbox.store.pool import Database, TopicStore, fetch_row
from outbox.store.queries import queries

LEASE: Final = timedelta(seconds=15)


def catch_up_ids(database: Database, started_by: object) -> None:
    """What begins may be the first to meet a database whose sequences lag after a switch-over, where ids that are there
    would be given out again. A projector does the same within a minute."""
    catch_up(database, Actor(str(started_by), Source.CLI))


class _RebuildStore(TopicStore, topic="rebuilds"):
    def refused(self, rebuild: int, refusals: Sequence[Refusal], count: int) -> None:
        self._run("note_refusals", id=rebuild, refusals=_told(refusals), count=count)


class PostgresMirrors(_RebuildStore):
    """One worker's side: what to mirror to, and its answer."""

    def __init__(self, database: Database, *, worker_id: str, start_id: UUID) -> None:
        super().__init__(database)
        self._me = {"worker_id": worker_id, "start_id": start_id}

    def mirroring(self) -> Mirroring | None:
        row = self._one("mirroring")
        return None if row is None else Mirroring(row[0], row[1], row[2], tuple(row[3]))

    def confirm(self, revision: int) -> None:
        self._run("confirm", **self._me, revision=revision)

    def give_up(self, mirroring: Mirroring, why: str) -> bool:
        """True for the first who says so."""
        return self._run("give_up", id=mirroring.rebuild, revision=mirroring.revision, why=why[:2000]) > 0


class PostgresRebuilds(_RebuildStore):
    """The worker-bench of `outbox rebuild`: `owner` names this process; its lease keeps others away."""

    def __init__(self, database: Database, *, owner: str) -> None:
        super().__init__(database)
        self._mine = {"owner": owner, "lease": LEASE}

    def begin(self, **about: object) -> Rebuild | None:
        """None: one that is not over is in the way."""
        catch_up_ids(self._database, about["started_by"])
        for name in ("mapping", "options"):
            about[name] = orjson.dumps(about[name]).decode()
        return self.newest() if self._one("begin", **about, **self._mine) is not None else None

    def newest(self) -> Rebuild | None:
        return self._rebuild("newest")

    def lately(self, limit: int) -> Sequence[Rebuild]:
        return [_rebuild(row) for row in self._rows("lately", limit=limit)]

    def take(self, id: int, dead_owner: str | None = None) -> Rebuild | None:
        """None: a living process works on it."""
        return self._rebuild("take", id=id, dead_owner=dead_owner, **self._mine)

    def renew(self, id: int) -> bool:
        return self._one("renew", id=id, **self._mine) is not None

    def let_go(self, id: int) -> None:
        self._run("let_go", id=id, **self._mine)

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
            **self._mine,
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

    def gather(self, id: int, written: int) -> int | None:
        """What all parts have written; answers how many documents were refused so far. None: it was cancelled, ended by
        a daemon or taken over."""
        refused: int | None = self._value("gather", id=id, **self._mine, written=written)
        return refused

    def give_up(self, rebuild: Rebuild, why: str) -> None:
        self._run("give_up", id=rebuild.id, revision=rebuild.revision, why=why[:2000])

    # Waiting for the daemons

    def unconfirmed(self, revision: int) -> Sequence[str]:
        return [row[0] for row in self._all("unconfirmed", revision=revision)]

    def now(self) -> datetime:
        moment: datetime = self._value("now")
        return moment

    def older_leases(self, moment: datetime) -> Sequence[tuple[str, int]]:
        return [(row[0], row[1]) for row in self._all("older_leases", moment=moment)]

    def _rebuild(self, query: str, **named: object) -> Rebuild | None:
        row = self._row(query, **named)
        return None if row is None else _rebuild(row)


def _told(refusals: Sequence[Refusal]) -> str:
    return orjson.dumps([refusal._asdict() for refusal in refusals]).decode()


def _parsed(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return row | {name: None if row[name] is None else orjson.loads(row[name]) for name in names}


def _rebuild(row: dict[str, Any]) -> Rebuild:
    parsed = _parsed(row, "mapping", "refusals", "options")
    return Rebuild(**parsed | {"mirrors": tuple(row["mirrors"])})


class PostgresBackfills(TopicStore, topic="backfills"):
    """`owner` names this process; its lease keeps others away."""

    def __init__(self, database: Database, *, owner: str) -> None:
        super().__init__(database)
        self._mine = {"owner": owner, "lease": LEASE}

    def begin(self, dead_owner: str | None, **about: object) -> BackfillRun | None:
        """None: another one is at work."""
        catch_up_ids(self._database, about["started_by"])
        return self._backfill("begin", **about, dead_owner=dead_owner)

    def newest(self) -> BackfillRun | None:
        return self._backfill("newest")

    def take(self, id: int, dead_owner: str | None) -> BackfillRun | None:
        """None: a living process works on it."""
        return self._backfill("take", id=id, dead_owner=dead_owner)

    def gather(self, id: int, written: int, newer: int, refused: int) -> bool:
        """What all parts have done. False: someone else has taken it over."""
        counts = {"written": written, "newer": newer, "refused": refused}
        return self._one("gather", **self._mine, **counts, id=id) is not None

    def note_refusals(self, id: int, refusals: Sequence[Refusal]) -> None:
        """The first hundred of all are kept; their number comes with `gather`."""
        self._run("note_refusals", id=id, refusals=_told(refusals[:100]))

    def end(self, id: int, status: str, error: str | None = None, entries: Sequence[Entry] = ()) -> None:
        with self._database.transaction() as connection:
            connection.execute(self._sql["end"], {**self._mine, "id": id, "status": status, "error": error})
            audit.write(connection, entries)

    def _backfill(self, query: str, **named: object) -> BackfillRun | None:
        row = self._row(query, **self._mine, **named)
        if row is None:
            return None
        return BackfillRun(**_parsed(row, "refusals") | {"entity_types": tuple(row["entity_types"])})


Row = Mapping[str, Any]


class PostgresVerifications(TopicStore, topic="verifications"):
    def begin(self, **about: object) -> int:
        catch_up_ids(self._database, about["started_by"])
        return int(self._value("begin", **about))

    def counts(self, id: int, report: DriftReport, status: str = "running", error: str | None = None) -> None:
        over = status != "running"
        named: dict[str, Any] = {
            "id": id,
            "status": status,
            "compared": report.compared,
            "unreadable": report.unreadable,
            "in_flux": report.in_flux,
            "report": orjson.dumps(report.as_json()).decode() if over else None,
            "error": error,
            **{kind.value: number for kind, number in report.counts.items()},
        }
        self._run("counts", **named)

    def lately(self, limit: int) -> Sequence[Row]:
        return [_parsed(row, "report") for row in self._rows("lately", limit=limit)]

    def last_finished(self, targets: Sequence[str]) -> LastVerification | None:
        """Of a comparison of just these targets, whole or by sample."""
        row = self._one("last_finished", target=", ".join(targets))
        if row is None:
            return None
        id, compared, *drift, finished_at, took = row
        return LastVerification(id, compared, dict(zip(_DRIFTS, drift, strict=True)), finished_at, took)


_DRIFTS: Final = ("missing", "stale", "orphaned", "different", "unknown")
