"""Refreshes for models of SQLAlchemy: `track` writes them at each flush, in the session's own transaction.

It sees the objects of a unit of work, whatever put them there (cascades, orphans, a relationship that moved), and not
statements: INSERT, UPDATE and DELETE given to `execute`, `bulk_*`, and what the database changes by itself (ON DELETE
CASCADE). Triggers see all of these: `outbox attach`.

The hooks of a model are of all sessions, so each model has them once. What a session notes is in its `info`, by
tracker: a session that is tracked by itself leaves nothing behind.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import Boolean, ClauseElement, Connection, LargeBinary, Text, event, inspect, select, text
from sqlalchemy import Enum as EnumType
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, PassiveFlag, Session, SessionTransaction
from sqlalchemy.orm.attributes import get_history
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
_NOTES: Final = "outbox.notes"
_WRITTEN: Final = "outbox.written"
_UNKNOWN: Final = object()
# The text that PostgreSQL and its triggers have for these is not Python's.
_NO_KEYS: Final = (Boolean, EnumType, LargeBinary)
# Changes of a collection that was never loaded, made from its other side.
_PENDING: Final = PassiveFlag.PASSIVE_NO_INITIALIZE | PassiveFlag.INCLUDE_PENDING_MUTATIONS

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
    """The ids of the events of the session's last transaction that wrote any; for `Outbox.wait`."""
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
        self._owners: dict[Mapper[Any], list[OwnerKeys]] = {}

    def follow(self, model: type[Any], owners: Sequence[OwnerColumn]) -> None:
        mapper = _mapper(model)
        self._owners.setdefault(mapper, []).extend(_keys(mapper, owner) for owner in owners)
        _hear(mapper)

    def listen(self) -> None:
        target = self._sessions
        event.listen(target, "before_flush", self._begin)
        event.listen(target, "after_flush", self._write)
        event.listen(target, "do_orm_execute", self._warn)
        event.listen(target, "after_soft_rollback", _drop)

    def _begin(self, session: Session, *_: object) -> None:
        session.info.setdefault(_NOTES, {})[self] = FlushNotes()

    def note(self, mapper: Mapper[Any], notes: FlushNotes, note: Noting, connection: Connection, state: Any) -> None:
        if keys := self._owners.get(mapper):
            notes.of(connection).update(note(notes, keys, connection, state))

    def _write(self, session: Session, _: UOWTransaction) -> None:
        notes: FlushNotes = session.info[_NOTES].pop(self)
        for connection, owners in notes.owners.items():
            if owners:
                values = dict(zip(_NAMES, map(list, zip(*owners, strict=True)), strict=True))
                _remember(session, map(event_id, connection.execute(_REFRESH, values).scalars()))

    def _warn(self, asked: ORMExecuteState) -> None:
        if not (asked.is_insert or asked.is_update or asked.is_delete):
            return
        changed = getattr(asked.statement, "table", None)
        for mapper, owners in self._owners.items():
            if any(changed in each.tables for each in mapper.self_and_descendants):
                warnings.warn(_remark(str(changed), mapper, owners), UntrackedStatement, stacklevel=_stacklevel())


_HEARD: Final[WeakSet[Mapper[Any]]] = WeakSet()


def _hear(mapper: Mapper[Any]) -> None:
    if mapper not in _HEARD:
        _HEARD.add(mapper)
        for name, note in _NOTING.items():
            event.listen(mapper.class_, name, _hook(mapper, note), propagate=True)


def _hook(mapper: Mapper[Any], note: Noting) -> Any:
    def handle(_: Mapper[Any], connection: Connection, target: object) -> None:
        state: InstanceState[Any] = inspect(target)
        flushes = {} if state.session is None else state.session.info.get(_NOTES, {})
        for tracker, notes in flushes.items():
            tracker.note(mapper, notes, note, connection, state)

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


def _session_target(sessions: Sessions) -> Any:
    """What SQLAlchemy listens to: for asyncio the synchronous sessions inside, and of a maker only its own."""
    if isinstance(sessions, async_scoped_session):
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
    return sessions


def _own(base: type[Session]) -> type[Session]:
    """A class of synchronous sessions that nobody else has."""
    return type(base.__name__, (base,), {})


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
    key = mapper.get_property_by_column(mapper.primary_key[0]).key
    return OwnerKeys(owner.entity_type, _column(mapper, getattr(mapper.class_, key)), None)


def _column(mapper: Mapper[Any], attribute: QueryableAttribute[Any]) -> str:
    of: Any = attribute.class_
    if attribute.key not in mapper.column_attrs or not issubclass(mapper.class_, of):
        raise UsageError(f"track: {attribute} is no column of {mapper.class_.__name__}. Name the column of the key")
    kind = mapper.columns[attribute.key].type
    if isinstance(kind, _NO_KEYS):
        raise UsageError(
            f"track: {attribute} is of type {type(kind).__name__}, whose text is not the same in PostgreSQL. Name a"
            " column of text, a number or a UUID, or use triggers: `outbox attach`"
        )
    return attribute.key


def _before_delete(_: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    """Whom the row belongs to, by what was loaded or else by what is stored."""
    for owner in keys:
        known = [_before(state.attrs[name].history) for name in owner.names]
        yield from _owed(owner, known if _UNKNOWN not in known else _stored(connection, state, owner))


def _before_update(notes: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    """SQLAlchemy asks for every object that was touched, also where no value differs."""
    if state.session.is_modified(state.obj()) or _has_pending(state):
        notes.changed.add(state)
        yield from _before_delete(notes, keys, connection, state)


def _has_pending(state: Any) -> bool:
    """`is_modified` does not know of `tag.articles.append(article)` while `article.tags` was never loaded."""
    return any(get_history(state.obj(), each.key, _PENDING).has_changes() for each in state.mapper.relationships)


def _before_insert(notes: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    """Has the new object the key of one that is deleted in this flush, then SQLAlchemy updates the row of that one,
    and asks no more than this before."""
    notes.changed.add(state)
    if state.mapper.identity_key_from_instance(state.obj()) in state.session.identity_map:
        for owner in keys:
            yield from _owed(owner, _stored(connection, state, owner))


def _after_insert(_: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    for owner in keys:
        values = [_plain(state.dict.get(name, _UNKNOWN)) for name in owner.names]
        yield from _owed(owner, values if _UNKNOWN not in values else _stored(connection, state, owner))


def _after_update(notes: FlushNotes, keys: list[OwnerKeys], connection: Connection, state: Any) -> Owed:
    if state in notes.changed:
        yield from _after_insert(notes, keys, connection, state)


_NOTING: Final[Mapping[str, Noting]] = {
    "before_insert": _before_insert,
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
    id, routing = [*map(_text, values), None][:2]
    if id is not None:
        yield (owner.entity_type, id, routing), None


def _text(value: object) -> str | None:
    return None if value is None else str(value.value if isinstance(value, Enum) else value)


def _remember(session: Session, ids: Iterable[UUID]) -> None:
    """Those of an earlier transaction are forgotten, not before: reading an object after a commit begins a new one."""
    root, transaction = session.get_transaction(), session.get_nested_transaction() or session.get_transaction()
    earlier = [each for each in session.info.get(_WRITTEN, []) if root and _inside(each[1], root)]
    session.info[_WRITTEN] = [*earlier, *((id, transaction) for id in ids)]


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
