"""Joins the models and sessions of a program to what a flush owes: `track`, and SQLAlchemy's events.

The hooks of a model are of all sessions, so each hierarchy of models has them once. What a session notes is in its
`info`, by tracker: a session that is tracked by itself leaves nothing behind.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sqlalchemy import Connection, Text, event, inspect, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Mapper, ORMExecuteState, Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.sql.expression import bindparam

from outbox.errors import WrongArgument
from outbox.producers.call import event_id, explained
from outbox.sqlalchemy.flush import FlushNotes, State
from outbox.sqlalchemy.owners import Models, OwnerKeys, mapper_of, owners_of
from outbox.sqlalchemy.written import forget_ended, keep_committed, remember

if TYPE_CHECKING:
    from sqlalchemy.orm import UOWTransaction

    from outbox.sqlalchemy.written import AnySession

    Sessions = AnySession | type[Session] | sessionmaker[Any] | type[AsyncSession] | async_sessionmaker[Any]

_NAMES: Final = ("types", "ids", "routings")
_REFRESH: Final = text(
    "select outbox_refresh(entity_type => e.entity_type, entity_id => e.entity_id, routing => e.routing)"
    " from unnest(cast(:types as text[]), cast(:ids as text[]), cast(:routings as text[]))"
    " as e (entity_type, entity_id, routing)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in _NAMES))
_NOTES: Final = "outbox.notes"


class UntrackedStatement(UserWarning):
    """A statement changed rows of a tracked model without a flush, so no refresh was written."""


def track(sessions: Sessions, models: Models) -> None:
    """Write a refresh for each object of these models that a flush inserts, changes or deletes.

    `sessions` is a Session class, a sessionmaker (also of asyncio), or a session. A model that is named by its entity
    type alone has its primary key as the entity's id.
    """
    if not isinstance(models, Mapping):
        raise WrongArgument('track: name the models as {Article: "article"}, each with its entity type')
    followed = {mapper_of(model): owners_of(model, owners) for model, owners in models.items()}
    Tracker(_session_target(sessions), followed).listen()


@dataclass(frozen=True, eq=False)
class Tracker:
    """What one call of `track` follows."""

    sessions: Any
    followed: Mapping[Mapper[Any], Sequence[OwnerKeys]]

    def listen(self) -> None:
        for mapper in self.followed:
            _hear(mapper.base_mapper)
        event.listen(self.sessions, "before_flush", self._begin)
        event.listen(self.sessions, "after_flush", self._write)
        event.listen(self.sessions, "do_orm_execute", self._warn)
        event.listen(self.sessions, "after_commit", keep_committed)
        event.listen(self.sessions, "after_transaction_end", _end)

    def owners(self, mapper: Mapper[Any]) -> list[OwnerKeys]:
        """A child class has those of its parents too."""
        return [owner for each in mapper.iterate_to_root() for owner in self.followed.get(each, ())]

    def _begin(self, session: Session, flush: UOWTransaction, _: object) -> None:
        session.info.setdefault(_NOTES, {})[self] = FlushNotes(self.owners, session, flush)

    def _write(self, session: Session, _: UOWTransaction) -> None:
        notes: FlushNotes = session.info[_NOTES].pop(self)
        notes.finish()
        for connection, owed in notes.owed.items():
            if owed:
                values = dict(zip(_NAMES, map(list, zip(*owed, strict=True)), strict=True))
                with explained():
                    ids = connection.execute(_REFRESH, values).scalars().all()
                remember(session, map(event_id, ids))

    def _warn(self, asked: ORMExecuteState) -> None:
        if not (asked.is_insert or asked.is_update or asked.is_delete):
            return
        statement = getattr(asked.statement, "element", asked.statement)  # of select(...).from_statement(...)
        changed = getattr(statement, "table", None)
        for mapper, owners in self.followed.items():
            if any(changed in each.tables for each in mapper.self_and_descendants):
                warnings.warn(_remark(str(changed), mapper, owners), UntrackedStatement, stacklevel=_stacklevel())


def _end(session: Session, ended: SessionTransaction) -> None:
    forget_ended(session, ended)
    if ended.parent is None:
        session.info.pop(_NOTES, None)  # of a flush that failed


_HEARD: Final[WeakSet[Mapper[Any]]] = WeakSet()
_EVENTS: Final = ("before_insert", "after_insert", "before_update", "after_update", "before_delete")


def _hear(mapper: Mapper[Any]) -> None:
    if mapper not in _HEARD:
        _HEARD.add(mapper)
        for name in _EVENTS:
            event.listen(mapper.class_, name, _hook(name), propagate=True)


def _hook(name: str) -> Any:
    def handle(_: Mapper[Any], connection: Connection, target: object) -> None:
        state: State = inspect(target)
        flushes = {} if state.session is None else state.session.info.get(_NOTES, {})
        for notes in flushes.values():
            getattr(notes, name)(connection, state)

    return handle


def _stacklevel() -> int:
    """Of whoever called SQLAlchemy, as seen from the caller of this function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith((__name__, "sqlalchemy.")):
        frame, level = frame.f_back, level + 1
    return level


def _remark(table: str, mapper: Mapper[Any], owners: Sequence[OwnerKeys]) -> str:
    attach = " and ".join(
        f"`outbox attach {table} --type {owner.entity_type} --id {mapper.columns[owner.id].name}`" for owner in owners
    )
    return (
        f"a statement changes {table} without a flush, so no refresh is written. Triggers see it: run {attach}, and"
        f" leave {mapper.class_.__name__} out of track(); or call Outbox.refresh for what it changes."
    )


def _session_target(sessions: Any) -> Any:
    """What SQLAlchemy listens to: for asyncio the synchronous sessions inside, and of a maker only its own."""
    if isinstance(sessions, (scoped_session, async_scoped_session)):
        return _session_target(sessions.session_factory)
    if isinstance(sessions, async_sessionmaker):
        own = _own(sessions.kw.get("sync_session_class", sessions.class_.sync_session_class))
        sessions.configure(sync_session_class=own)
        return own
    if isinstance(sessions, AsyncSession):
        return sessions.sync_session
    if isinstance(sessions, type) and issubclass(sessions, AsyncSession):
        sessions.sync_session_class = _own(sessions.sync_session_class)
        return sessions.sync_session_class
    if isinstance(sessions, (Session, sessionmaker)) or (isinstance(sessions, type) and issubclass(sessions, Session)):
        return sessions
    raise WrongArgument(f"track: {sessions!r} makes no sessions. Give a sessionmaker, a session or its class")


def _own(base: type[Session]) -> type[Session]:
    """A class of synchronous sessions that nobody else has."""
    return type(base.__name__, (base,), {})
