"""Claims events and lets them out again: one worker's way into and out of `processing`. Decides nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import orjson
import psycopg
from psycopg import Connection
from psycopg.rows import RowMaker, tuple_row

from outbox.errors import LockHeld, SchemaMismatch
from outbox.policy.audit import Action, Actor, Entry, Source
from outbox.policy.document import INLINE_BYTES
from outbox.policy.event import MOST_ABANDONED, Event
from outbox.policy.outcome import Failure, Reason, detail_without_reply
from outbox.policy.redact import LONGEST_ERROR_BYTES, cut, fingerprint, redact
from outbox.policy.settle import DONE, Done, Failed, Released, RetryLater, Settlement
from outbox.ports import Claimed, ClaimOrder, GivenBack, NewerDelete, Reclaim, Settled
from outbox.store import audit
from outbox.store.pool import Database, TopicStore
from outbox.store.queries import queries

# `Event._make` without its frame in Python: 0.1 us per row instead of 0.35.
_EVENT: Final = cast("RowMaker[Event]", partial(tuple.__new__, Event))
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
REFUSALS: Final = (psycopg.Error, SchemaMismatch)  # an error that is no outage: some row, or all, cannot be written so
# Of a batch: more are hardly the rows' own fault, and each costs a dozen statements. A person must act then.
MOST_REFUSED: Final = 20
REFUSED_SECONDS: Final = 600.0  # before a row that can neither be settled nor failed is tried again
LOWEST_SEQ: Final = -(2**63)  # what a producer may write; a floor of 0 is none
SUSPECTS_MOST = {1: 1, 2: 2, 3: 2_147_483_647}  # the third level holds all that died three times and more


class Wanted(NamedTuple):
    """An entity as `ViewDocuments.load` asks for it."""

    id: UUID
    entity_type: str
    entity_id: str


class PostgresEvents(TopicStore, topic="events"):
    """One worker's view of the queue. Thread-safe: each call takes a connection of its own from the pool."""

    has_all_events = True

    def __init__(
        self,
        database: Database,
        *,
        owner: str,
        start_id: UUID,
        lease_seconds: float,
        batch_bytes: int,
    ) -> None:
        super().__init__(database)
        self.database = database
        self._batch_bytes = batch_bytes
        self._owner = owner
        self._start_id = start_id
        self._lease = timedelta(seconds=lease_seconds)

    def claim(self, order: ClaimOrder) -> Claimed:
        with self.database.connection() as connection:
            return self._claim(connection, order)

    def claim_within_quota(self, order: ClaimOrder) -> Claimed:
        """A claim of a limited type: the lock comes first and in a statement of its own, because only the next
        statement's snapshot sees what the previous holder of the lock has taken."""
        assert order.entity_type is not None
        try:
            with self.database.connection() as connection, connection.transaction():
                return self._claim_limited(connection, order)
        except LockHeld:  # by a person: other types do not wait for it
            return Claimed(order.token, (), order)

    def _claim_limited(self, connection: Connection[Any], order: ClaimOrder) -> Claimed:
        named = {"entity_type": order.entity_type}
        quota = connection.execute(self._sql["lock_quota"], named).fetchone()
        if quota is None:
            return self._claim(connection, order)
        most_in_flight, rate, tokens = quota
        allowed = order.limit if rate is None else min(order.limit, int(tokens))
        if most_in_flight is not None:
            row = connection.execute(self._sql["in_flight"], named).fetchone()
            allowed = min(allowed, most_in_flight - (row[0] if row else 0))
        if allowed < 1:
            return Claimed(order.token, (), order)
        claimed = self._claim(connection, replace(order, limit=allowed, retry_limit=max(1, allowed // 2)))
        if rate is not None and claimed.events:
            connection.execute(self._sql["spend_quota"], {**named, "tokens": tokens, "n": len(claimed.events)})
        return claimed

    def _claim(self, connection: Connection[Any], order: ClaimOrder) -> Claimed:
        name = "claim_suspects" if order.suspects else "claim" if order.entity_type is None else "claim_of_type"
        parameters = {
            "owner": self._owner,
            "start_id": self._start_id,
            "token": order.token,
            "lease": self._lease,
            "limit": order.limit,
            "retry_limit": min(order.retry_limit, order.limit),
            "floor": order.floor or LOWEST_SEQ,
            "inline_bytes": inline_bytes(self._batch_bytes, order.limit),
            "entity_type": order.entity_type,
            "suspects": order.suspects,
            "suspects_most": SUSPECTS_MOST.get(order.suspects, 0),
        }
        with connection.cursor(binary=True, row_factory=_event_row) as cursor:
            cursor.execute(self._sql[name], parameters)
            return Claimed(order.token, cursor.fetchall(), order)

    def settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None = None,
        *,
        part: bool = False,
    ) -> Settled:
        """Every verdict of a batch in one statement, fenced by the token: what is no longer ours stays as it is. Where
        the database refuses that, it is written in halves, down to the rows at fault."""
        refused: dict[UUID, str] = {}
        settled: set[UUID] = set()
        try:
            only = [id for id, _ in settlements] if part else None
            kept, which, changed = self._settle(token, settlements, drawn, only)
            if kept == len(settlements):
                return Settled(kept, ())
            if changed:
                return Settled(0, (), changed=True)
            settled.update(which or ())
        except REFUSALS as error:
            self._settle_halves(token, settlements, drawn, error, refused, settled)
            if isinstance(error, SchemaMismatch) and len(refused) == len(settlements):
                raise  # none of it can be written: a person must act, and no row is at fault
        return self._unsettled(token, [id for id, _ in settlements if id not in settled], len(settlements), refused)

    def _settle_halves(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None,
        error: Exception,
        refused: dict[UUID, str],
        settled: set[UUID],
    ) -> None:
        if len(settlements) == 1:
            refused[settlements[0][0]] = _words(error)
            if len(refused) > MOST_REFUSED:
                raise SchemaMismatch(_words(error)) from error
            return
        half = len(settlements) // 2
        for part in (settlements[:half], settlements[half:]):
            ids = [id for id, _ in part]
            try:
                kept, which, _ = self._settle(token, part, drawn, ids)
                settled.update(ids if kept == len(ids) else which or ())
            except REFUSALS as again:
                self._settle_halves(token, part, drawn, again, refused, settled)

    def _settle(
        self,
        token: UUID,
        settlements: Sequence[tuple[UUID, Settlement]],
        drawn: int | None,
        only: list[UUID] | None,
    ) -> tuple[int, list[UUID] | None, bool]:
        verdicts = [
            _verdict(id, settlement)
            for id, settlement in settlements
            if settlement is not DONE and not _is_plain(settlement)
        ]
        parameters: dict[str, Any] = {"token": token, "drawn": drawn, "only": only, "settles": True}
        parameters["expected"] = len(settlements)
        with self.database.connection() as connection:
            if verdicts:
                parameters |= {"owner": self._owner, "verdicts": storable(orjson.dumps(verdicts).decode(), connection)}
            row = connection.execute(self._sql["settle" if verdicts else "settle_done"], parameters).fetchone()
        assert row is not None
        return row[0], row[1], row[2]

    def _unsettled(self, token: UUID, ids: Sequence[UUID], expected: int, refused: Mapping[UUID, str]) -> Settled:
        rows = self._all("unsettled", token=token, ids=list(ids))
        lost = [id for id, busy in rows if not busy]
        held = {id for id, busy in rows if busy}
        still = {id: error for id, error in refused.items() if id in held}
        return Settled(expected - len(rows), lost, [id for id in held if id not in still], still)

    def abandon(self, token: UUID, ids: Sequence[UUID], error: str) -> Reclaim:
        """Where the database refuses it, one by one. What it will not have in any state waits for the end of its lease,
        and for nobody else."""
        try:
            return self._abandon(token, ids, error, MOST_ABANDONED - 1, None)
        except REFUSALS:
            if len(ids) > 1:
                each = [self.abandon(token, [id], error) for id in ids]
                return Reclaim(*map(sum, zip(*each, strict=True)))
        try:
            return self._abandon(token, ids, error, None, REFUSED_SECONDS)
        except REFUSALS:
            return Reclaim(0, 0, 0, refused=1)

    def _abandon(
        self, token: UUID, ids: Sequence[UUID], error: str, last: int | None, delay_seconds: float | None
    ) -> Reclaim:
        told = cut(f"crash_suspect: {error}", LONGEST_ERROR_BYTES)
        named = {
            "token": token,
            "only": list(ids),
            "settles": False,
            "last": last,
            "delay": delay_seconds,
            "error": told,
            "fingerprint": fingerprint(Reason.CRASH_SUSPECT, told),
            "detail": orjson.dumps(detail_without_reply(Reason.CRASH_SUSPECT, told)).decode(),
        }
        row = self._one("abandon", **named)
        assert row is not None
        return Reclaim(row[0], row[0], row[1])

    def renew(self, token: UUID) -> bool:
        """False when the lease is gone: someone else has taken the rows. One heartbeat serves all lanes, so it waits
        for no lock for long, be it of a row or of a table. A settle of a part takes the lease away and puts it back:
        who waited for it then sees it gone, so none is believed at once."""
        return self._renew(token) or self._renew(token)

    def _renew(self, token: UUID) -> bool:
        with self.database.transaction() as connection:
            connection.execute(self._sql["no_long_waits"])
            row = connection.execute(self._sql["renew"], {"token": token, "lease": self._lease}).fetchone()
            return bool(row and row[0])

    def release(self, token: UUID) -> GivenBack:
        """Give back all that a lease still holds, with its attempt. A shutdown waits for it, so it waits for nobody."""
        with self.database.transaction() as connection:
            connection.execute(self._sql["no_long_waits"])
            row = connection.execute(
                self._sql["release_token"], {"token": token, "only": None, "settles": False}
            ).fetchone()
            return GivenBack(*row) if row else GivenBack(0, 0)

    def unanswered(self, token: UUID) -> None:
        """Its lease ends by itself."""

    def payloads(self, ids: Sequence[UUID]) -> Mapping[UUID, bytes]:
        with self.database.connection() as connection, connection.cursor(binary=True) as cursor:
            rows = cursor.execute(self._sql["payloads"], {"ids": list(ids)}).fetchall()
            return {id: payload for id, payload in rows if payload is not None}

    def deleted(self, events: Sequence[Event]) -> set[UUID]:
        return {events[place - 1].id for (place,) in self._all("deleted", **_entities(events))}

    def refresh_again(self, events: Sequence[Event]) -> None:
        self._run("refresh_again", **_entities(events))

    def lately_done(self, types: Sequence[str], most: int) -> Sequence[Wanted]:
        return [Wanted(*row) for row in self._all("lately_done", types=list(types), most=most)]

    def last_version(self) -> int:
        return last_version(self.database)

    def raise_version(self, seen: int) -> int | None:
        return raise_version(self.database, seen, Actor(self._owner, Source.DAEMON))

    def newer_deletes(self, token: UUID, ids: Sequence[UUID]) -> Mapping[UUID, NewerDelete]:
        with self.database.connection() as connection:
            rows = connection.execute(self._sql["newer_deletes"], {"token": token}).fetchall()
            named = next(n for id, n, _ in rows if id is None)
            if named < len(ids):
                rows = connection.execute(self._sql["newer_deletes_of"], {"ids": list(ids)}).fetchall()
            return {id: NewerDelete(version, routing) for id, version, routing in rows if id is not None}

    def open_types(self) -> list[str]:
        """The entity types that have open rows now. Needs the twins of `outbox migrate --by-type`."""
        return [row[0] for row in self._all("open_types")]

    def put_quota(self, entity_type: str, max_in_flight: int | None, rate: float | None) -> None:
        self._run("put_quota", entity_type=entity_type, max_in_flight=max_in_flight, rate=rate)


def _entities(events: Sequence[Event]) -> dict[str, list[str]]:
    return {"types": [event.entity_type for event in events], "entities": [event.entity_id for event in events]}


def last_version(database: Database) -> int:
    with database.connection() as connection:
        row = connection.execute(queries("events")["last_version"]).fetchone()
        assert row is not None
        return int(row[0])


def catch_up(database: Database, actor: Actor) -> tuple[int, int] | None:
    """Where rows came without their sequence: what it was and what was given out, with a row in the audit."""
    with database.connection() as connection:
        return catch_up_on(connection, actor)


def catch_up_on(connection: Connection[Any], actor: Actor) -> tuple[int, int] | None:
    with connection.transaction():
        row = connection.execute(queries("events")["catch_up"]).fetchone()
        if row is None:
            return None
        was, now, renumbered = map(int, row)
        detail = {"was": was, "now": now, "renumbered": renumbered}
        reason = "rows have versions that this sequence never gave out"
        audit.write(connection, [Entry(Action.VERSION_RAISED, actor, reason, detail=detail)])
        return was, now


def raise_version(database: Database, seen: int, actor: Actor) -> int | None:
    """With a row in the audit, which `outbox doctor` tells of."""
    with database.transaction() as connection:
        row = connection.execute(queries("events")["raise_version"], {"seen": seen}).fetchone()
        was = None if row is None else int(row[0])
        if was is not None:
            reason = "an index holds a version that this database never gave out"
            audit.write(connection, [Entry(Action.VERSION_RAISED, actor, reason, detail={"was": was, "now": seen})])
        return was


def _event_row(cursor: Any) -> RowMaker[Event]:
    if cursor.description is None:
        return cast("RowMaker[Event]", tuple_row(cursor))
    return _EVENT


def storable(json: str, connection: Connection[Any]) -> str:
    """An error may quote what a database of another encoding cannot hold, from an escape in the payload or in the
    server's own words. There it is written as that escape: a verdict must be recorded."""
    if connection.info.parameter_status("server_encoding") in ("UTF8", None):
        return json
    return _NOT_ASCII.sub(lambda found: f"\\\\u{ord(found[0]):04x}", json)


def _is_plain(settlement: Settlement) -> bool:
    return isinstance(settlement, Done) and not settlement.gone and settlement.drawn is None


def _verdict(id: UUID, settlement: Settlement) -> dict[str, Any]:
    """One row of what `settle` reads; what is missing is null there."""
    match settlement:
        case Done():
            return {"id": id, "verdict": "gone" if settlement.gone else "done", "drawn": settlement.drawn}
        case RetryLater():
            failure = settlement.failure
            own = not failure.whole
            # An attempt is recorded only where the event itself was at fault; an outage would write one for every row.
            told = {"detail": failure.error_detail if own else None}
            delay = settlement.delay_seconds
            return {"id": id, "verdict": "retry", "delay": delay, "own": own, **failure_columns(failure), **told}
        case Failed():
            failure = settlement.failure
            dead, own = settlement.dead_reason, not failure.whole
            told = {"detail": failure.error_detail}
            columns = failure_columns(failure)
            return {"id": id, "verdict": "failed", "dead_reason": dead, "own": own, **columns, **told}
        case Released():
            columns = failure_columns(settlement.failure) if settlement.failure else {}
            return {"id": id, "verdict": "release", "delay": settlement.delay_seconds, **columns}


def failure_columns(failure: Failure) -> dict[str, Any]:
    return {
        "reason": failure.reason,
        "code": failure.code,
        "error": failure.error,
        "fingerprint": failure.fingerprint,
    }


def _words(error: Exception) -> str:
    """The database's own words, without values: a trigger of the user's may say anything."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else str(error)
    return f"the database refused to write its verdict: {redact(said or type(error).__name__)}"


def inline_bytes(batch_bytes: int, events: int) -> int:
    """Below this size a document comes along when so many are read at once; larger ones are read by portions. A flat
    64 KiB took a process to 1.34 of its promise with documents of 60 KB; this, 0.89 (`bench memory`)."""
    return min(INLINE_BYTES, batch_bytes // max(1, events))
