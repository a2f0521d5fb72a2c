"""Refreshes for models of SQLAlchemy: `track` writes them at each flush, in the session's own transaction.

It sees the objects of a unit of work, whatever put them there (cascades, orphans, a relationship that moved), and not
statements: INSERT, UPDATE and DELETE given to `execute`, `bulk_*`, and what the database changes by itself (ON DELETE
CASCADE). Triggers see all of these: `outbox attach`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy import ClauseElement, Connection, Text, event, inspect, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, Session, SessionTransaction
from sqlalchemy.sql.expression import bindparam

from outbox.errors import UsageError
from outbox.producers.call import event_id
from outbox.producers.connection import ConnectionKind
from outbox.producers.writing import require_transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import QueryableAttribute, UOWTransaction, scoped_session, sessionmaker

    Sessions = (
        type[Session]
        | Session
        | sessionmaker[Any]
        | scoped_session[Any]
        | type[AsyncSession]
        | AsyncSession
        | async_sessionmaker[Any]
        | async_scoped_session[Any]
    )

__all__ = ["OwnerColumn", "UntrackedStatement", "by", "track", "written"]

_NAMES: Final = ("types", "ids", "routings")
_REFRESH: Final = text(
    "select outbox_refresh(entity_type => e.entity_type, entity_id => e.entity_id, routing => e.routing)"
    " from unnest(cast(:types as text[]), cast(:ids as text[]), cast(:routings as text[]))"
    " as e (entity_type, entity_id, routing)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in _NAMES))
_WRITTEN: Final = "outbox.written"
_UNKNOWN: Final = object()

Key = tuple[str, str, str | None]  # entity type, entity id, routing


class UntrackedStatement(UserWarning):
    """A statement changed rows of a tracked model without a flush, so no refresh was written."""


@dataclass(frozen=True, slots=True)
class OwnerColumn:
    """Whose document changes with a row: the entity type, and the column that has the entity's id."""

    entity_type: str
    attribute: QueryableAttribute[Any] | None = None
    routing: QueryableAttribute[Any] | None = None


def by(
    entity_type: str, attribute: QueryableAttribute[Any], *, routing: QueryableAttribute[Any] | None = None
) -> OwnerColumn:
    """The document of another entity, by the column that refers to it, such as `by("article", Comment.article_id)`.

    Null refreshes nobody. A row that moves refreshes the old and the new entity.
    """
    return OwnerColumn(entity_type, attribute, routing)


def track(sessions: Sessions, models: Mapping[type[Any], str | OwnerColumn | Sequence[str | OwnerColumn]]) -> None:
    """Write a refresh for each object of these models that a flush inserts, changes or deletes.

    `sessions` is a Session class, a sessionmaker (also of asyncio), or a session. A model that is named by its entity
    type alone has its primary key as the entity's id.
    """
    tracker = Tracker(sessions)
    for model, owners in models.items():
        given = [owners] if isinstance(owners, (str, OwnerColumn)) else owners
        tracker.follow(model, [OwnerColumn(each) if isinstance(each, str) else each for each in given])
    tracker.listen()


def written(session: Session | AsyncSession) -> list[UUID]:
    """The ids of the events of the session's last transaction, or of the one that is open; for `Outbox.wait`."""
    entries: list[tuple[UUID, SessionTransaction | None]] = _sync(session).info.get(_WRITTEN, [])
    return [id for id, _ in entries]


def _sync(session: Session | AsyncSession) -> Session:
    return session.sync_session if isinstance(session, AsyncSession) else session


@dataclass(slots=True)
class FlushNotes:
    """Who is to be refreshed at the end of one flush: by connection, each once."""

    owners: dict[Connection, dict[Key, None]] = field(default_factory=dict)
    # After its UPDATE an object whose values came by SQL expressions no longer counts as modified.
    changed: set[InstanceState[Any]] = field(default_factory=set)

    def of(self, connection: Connection) -> dict[Key, None]:
        """Asked for before the row is written: a connection in autocommit is refused then."""
        if connection not in self.owners:
            require_transaction(connection, ConnectionKind.SQLALCHEMY)
        return self.owners.setdefault(connection, {})


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    """An owner by the names of its attributes on the model."""

    entity_type: str
    id: str
    routing: str | None

    @property
    def names(self) -> list[str]:
        return [self.id] if self.routing is None else [self.id, self.routing]


Owed = Iterable[tuple[Key, None]]
Noting = Callable[[FlushNotes, list[OwnerKeys], Connection, Any], Owed]


class Tracker:
    """What one call of `track` follows."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = _session_target(sessions)
        self._owners: dict[type[Any], list[OwnerKeys]] = {}
        self._note = f"outbox.flush.{id(self)}"

    def follow(self, model: type[Any], owners: Sequence[OwnerColumn]) -> None:
        mapper = _mapper(model)
        keys = self._owners.setdefault(model, [])
        keys += [_keys(mapper, owner) for owner in owners]

        def noting(note: Noting) -> Any:
            def handle(_: Mapper[Any], connection: Connection, target: object) -> None:
                state: InstanceState[Any] = inspect(target)
                notes = self._notes(state)
                if notes is not None:
                    notes.of(connection).update(note(notes, keys, connection, state))

            return handle

        for name, note in _NOTING.items():
            event.listen(model, name, noting(note), propagate=True)

    def listen(self) -> None:
        target = self._sessions
        event.listen(target, "before_flush", self._begin)
        event.listen(target, "after_flush", self._write)
        event.listen(target, "do_orm_execute", self._warn)
        event.listen(target, "after_transaction_create", _forget)
        event.listen(target, "after_soft_rollback", _drop)

    def _notes(self, state: InstanceState[Any]) -> FlushNotes | None:
        """None for a session that is not tracked: the events of a mapper are of all sessions."""
        session = state.session
        return None if session is None else session.info.get(self._note)

    def _begin(self, session: Session, *_: object) -> None:
        session.info[self._note] = FlushNotes()

    def _write(self, session: Session, _: UOWTransaction) -> None:
        notes: FlushNotes = session.info.pop(self._note)
        for connection, owners in notes.owners.items():
            if owners:
                values = dict(zip(_NAMES, map(list, zip(*owners, strict=True)), strict=True))
                ids = connection.execute(_REFRESH, values).scalars()
                transaction = session.get_nested_transaction() or session.get_transaction()
                session.info.setdefault(_WRITTEN, []).extend((event_id(id), transaction) for id in ids)

    def _warn(self, asked: ORMExecuteState) -> None:
        if not (asked.is_insert or asked.is_update or asked.is_delete):
            return
        changed = getattr(asked.statement, "table", None)
        for model, owners in self._owners.items():
            mapper = _mapper(model)
            if any(changed in each.tables for each in mapper.self_and_descendants):
                warnings.warn(_remark(str(changed), mapper, owners), UntrackedStatement, stacklevel=2)


def _remark(table: str, mapper: Mapper[Any], owners: Sequence[OwnerKeys]) -> str:
    attach = " and ".join(
        f"`outbox attach {table} --type {owner.entity_type} --id {mapper.columns[owner.id].name}`" for owner in owners
    )
    return (
        f"a statement changes {table} without a flush, so no refresh is written. Triggers see it: run {attach}, and"
        f" leave {mapper.class_.__name__} out of track(); or call Outbox.refresh for what it changes."
    )


def _session_target(sessions: Sessions) -> Any:
    """What SQLAlchemy listens to: for asyncio the synchronous sessions inside, and of a maker only its own."""
    if isinstance(sessions, async_scoped_session):
        return _session_target(sessions.session_factory)
    if isinstance(sessions, async_sessionmaker):
        base = sessions.kw.get("sync_session_class", sessions.class_.sync_session_class)
        own: type[Session] = type(base.__name__, (base,), {})
        sessions.configure(sync_session_class=own)
        return own
    if isinstance(sessions, AsyncSession):
        return sessions.sync_session
    if isinstance(sessions, type) and issubclass(sessions, AsyncSession):
        return sessions.sync_session_class
    return sessions


def _mapper(model: type[Any]) -> Mapper[Any]:
    mapper = inspect(model, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise UsageError(f"track: {model!r} is not a mapped class")
    return mapper


def _keys(mapper: Mapper[Any], owner: OwnerColumn) -> OwnerKeys:
    name = mapper.class_.__name__
    if owner.attribute is not None:
        routing = None if owner.routing is None else _column(mapper, owner.routing)
        return OwnerKeys(owner.entity_type, _column(mapper, owner.attribute), routing)
    if len(mapper.primary_key) != 1:
        raise UsageError(f'track: the key of {name} has several columns. Name one: by("{owner.entity_type}", {name}.x)')
    return OwnerKeys(owner.entity_type, mapper.get_property_by_column(mapper.primary_key[0]).key, None)


def _column(mapper: Mapper[Any], attribute: QueryableAttribute[Any]) -> str:
    of: Any = attribute.class_
    if attribute.key not in mapper.column_attrs or not issubclass(mapper.class_, of):
        raise UsageError(f"track: {attribute} is no column of {mapper.class_.__name__}. Name the column of the key")
    return attribute.key


def _before_delete(_: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    """Whom the row belongs to, by what was loaded or else by what is stored."""
    for owner in keys:
        known = [_before(state.attrs[name].history) for name in owner.names]
        yield from _owed(owner, known if _UNKNOWN not in known else _stored(connection, state, owner))


def _before_update(notes: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    """SQLAlchemy asks for every object that was touched, also where no value differs."""
    if state.session.is_modified(state.obj()):
        notes.changed.add(state)
        yield from _before_delete(notes, keys, connection, state)


def _after_insert(_: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    for owner in keys:
        values = [_plain(state.dict.get(name, _UNKNOWN)) for name in owner.names]
        yield from _owed(owner, values if _UNKNOWN not in values else _stored(connection, state, owner))


def _after_update(notes: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    if state in notes.changed:
        yield from _after_insert(notes, keys, connection, state)


_NOTING: Final[Mapping[str, Noting]] = {
    "before_insert": lambda *_: (),
    "after_insert": _after_insert,
    "before_update": _before_update,
    "after_update": _after_update,
    "before_delete": _before_delete,
}


def _before(history: Any) -> object:
    """The value as it is stored. Unknown where it was never loaded, also if a new one was set meanwhile."""
    for known in (history.deleted, history.unchanged):
        if known:
            return _plain(known[0])
    return _UNKNOWN


def _plain(value: object) -> object:
    """An SQL expression is no value yet."""
    return _UNKNOWN if isinstance(value, ClauseElement) else value


def _stored(connection: Connection, state: Any, owner: OwnerKeys) -> Sequence[object]:
    mapper = state.mapper
    identity = state.identity or mapper.primary_key_from_instance(state.obj())
    asked = select(*(mapper.columns[name] for name in owner.names)).select_from(mapper.selectable)
    for column, value in zip(mapper.primary_key, identity, strict=True):
        asked = asked.where(column == value)
    row = connection.execute(asked).first()
    return [None] * len(owner.names) if row is None else list(row)


def _owed(owner: OwnerKeys, values: Sequence[object]) -> Owed:
    id, routing = values[0], values[1] if len(values) > 1 else None
    if id is not None:
        yield (owner.entity_type, str(id), None if routing is None else str(routing)), None


def _forget(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_WRITTEN, None)


def _drop(session: Session, ended: SessionTransaction) -> None:
    """Of a rollback, also to a savepoint: what was written inside is gone."""
    if _WRITTEN in session.info:
        session.info[_WRITTEN] = [each for each in session.info[_WRITTEN] if not _inside(each[1], ended)]


def _inside(transaction: SessionTransaction | None, ended: SessionTransaction) -> bool:
    while transaction is not None:
        if transaction is ended:
            return True
        transaction = transaction.parent
    return False
