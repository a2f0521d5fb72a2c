"""Refreshes for models of SQLAlchemy: `track` writes them at each flush, in the session's own transaction.

It sees the objects of a unit of work, whatever put them there (cascades, orphans, a relationship that moved), and not
statements: INSERT, UPDATE and DELETE given to `execute`, `bulk_*`, and what the database changes by itself (ON DELETE
CASCADE). Triggers see all of these: `outbox attach`.

Whom a row belongs to is asked of the row, not of the object: somebody else may have moved it since it was loaded. It is
read with a lock directly before SQLAlchemy writes it, so the flush takes its locks in the order that it has without us.

The hooks of a model are of all sessions, so each hierarchy of models has them once. What a session notes is in its
`info`, by tracker: a session that is tracked by itself leaves nothing behind.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import (
    CHAR,
    NCHAR,
    Column,
    Connection,
    Integer,
    String,
    Text,
    Uuid,
    cast,
    event,
    inspect,
    select,
    text,
    tuple_,
)
from sqlalchemy import Enum as EnumType
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import (
    InstanceState,
    Mapper,
    ORMExecuteState,
    PassiveFlag,
    QueryableAttribute,
    Session,
    SessionTransaction,
    scoped_session,
    sessionmaker,
)
from sqlalchemy.orm.attributes import get_history
from sqlalchemy.sql.expression import bindparam

from outbox.errors import WrongArgument
from outbox.producers.call import event_id
from outbox.producers.connection import ConnectionKind
from outbox.producers.writing import require_transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import UOWTransaction

    AnySession = Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]
    Sessions = AnySession | type[Session] | sessionmaker[Any] | type[AsyncSession] | async_sessionmaker[Any]

__all__ = ["Models", "OwnerColumn", "UntrackedStatement", "by", "track", "written"]

_NAMES: Final = ("types", "ids", "routings")
_REFRESH: Final = text(
    "select outbox_refresh(entity_type => e.entity_type, entity_id => e.entity_id, routing => e.routing)"
    " from unnest(cast(:types as text[]), cast(:ids as text[]), cast(:routings as text[]))"
    " as e (entity_type, entity_id, routing)"
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in _NAMES))
_NOTES: Final = "outbox.notes"
_WRITTEN: Final = "outbox.written"
# Python's text of these values is PostgreSQL's, in a column of this type. All else is read from the row.
_WITH_TEXT: Final[Mapping[type, type]] = {int: Integer, str: String, UUID: Uuid}
_WITH_OTHER_TEXT: Final = (CHAR, NCHAR, EnumType)
# Parameters of one statement. asyncpg takes at most 32,767.
_MOST_PARAMETERS: Final = 10_000
# Changes of a collection that was never loaded, made from its other side.
_PENDING: Final = PassiveFlag.PASSIVE_NO_INITIALIZE | PassiveFlag.INCLUDE_PENDING_MUTATIONS

Key = tuple[str, str, str | None]  # entity type, entity id, routing
Identity = tuple[Any, ...]  # the values of a primary key
State: TypeAlias = InstanceState[Any]


class UntrackedStatement(UserWarning):
    """A statement changed rows of a tracked model without a flush, so no refresh was written."""


@dataclass(frozen=True, slots=True)
class OwnerColumn:
    """Whose document changes with a row: the entity type, and the column that has the entity's id."""

    entity_type: str
    attribute: QueryableAttribute[Any] | None = None
    routing: QueryableAttribute[Any] | None = None


Models: TypeAlias = Mapping[type[Any], str | OwnerColumn | Sequence[str | OwnerColumn]]


def by(
    entity_type: str, attribute: QueryableAttribute[Any], *, routing: QueryableAttribute[Any] | None = None
) -> OwnerColumn:
    """The document of another entity, by the column that refers to it, such as `by("article", Comment.article_id)`.

    Null refreshes nobody. A row that moves refreshes the old and the new entity.
    """
    return OwnerColumn(entity_type, attribute, routing)


def track(sessions: Sessions, models: Models) -> None:
    """Write a refresh for each object of these models that a flush inserts, changes or deletes.

    `sessions` is a Session class, a sessionmaker (also of asyncio), or a session. A model that is named by its entity
    type alone has its primary key as the entity's id.
    """
    if not isinstance(models, Mapping):
        raise WrongArgument('track: name the models as {Article: "article"}, each with its entity type')
    followed = {_mapper(model): _owners(model, owners) for model, owners in models.items()}
    Tracker(_session_target(sessions), followed).listen()


def written(session: AnySession) -> list[UUID]:
    """The ids of the events of the session's last transaction that wrote any and is committed; for `Outbox.wait`."""
    return list(_written(session).committed)


@dataclass(slots=True)
class WrittenIds:
    """The ids of a session's events. They count when the outermost transaction is committed."""

    committed: list[UUID] = field(default_factory=list)
    open: dict[SessionTransaction, list[UUID]] = field(default_factory=dict)  # a savepoint's apart


def _written(session: AnySession) -> WrittenIds:
    found: WrittenIds = session.info.setdefault(_WRITTEN, WrittenIds())
    return found


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _remember(session: Session, ids: Iterable[UUID]) -> None:
    if (transaction := _innermost(session)) is not None:
        _written(session).open.setdefault(transaction, []).extend(ids)


def _commit(session: Session) -> None:
    """Also of a savepoint, whose events are those of the transaction around it from then on."""
    transaction, written = _innermost(session), _written(session)
    if transaction is None or not (ids := written.open.pop(transaction, [])):
        return
    if transaction.parent is None:
        written.committed = ids
    else:
        written.open.setdefault(transaction.parent, []).extend(ids)


def _forget(session: Session, ended: SessionTransaction) -> None:
    """However it ended (rollback, an error, close), what was not committed before is gone."""
    _written(session).open.pop(ended, None)
    if ended.parent is None:
        session.info.pop(_NOTES, None)  # of a flush that failed


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    """An owner by the names of its attributes on the model."""

    entity_type: str
    id: str
    routing: str | None

    @property
    def names(self) -> list[str]:
        return [self.id] if self.routing is None else [self.id, self.routing]


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
        event.listen(self.sessions, "after_commit", _commit)
        event.listen(self.sessions, "after_transaction_end", _forget)

    def owners(self, mapper: Mapper[Any]) -> list[OwnerKeys]:
        """A child class has those of its parents too."""
        return [owner for each in mapper.iterate_to_root() for owner in self.followed.get(each, ())]

    def _begin(self, session: Session, flush: UOWTransaction, _: object) -> None:
        session.info.setdefault(_NOTES, {})[self] = FlushNotes(self, session, flush)

    def _write(self, session: Session, _: UOWTransaction) -> None:
        notes: FlushNotes = session.info[_NOTES].pop(self)
        notes.finish()
        for connection, owed in notes.owed.items():
            if owed:
                values = dict(zip(_NAMES, map(list, zip(*owed, strict=True)), strict=True))
                _remember(session, map(event_id, connection.execute(_REFRESH, values).scalars()))

    def _warn(self, asked: ORMExecuteState) -> None:
        if not (asked.is_insert or asked.is_update or asked.is_delete):
            return
        statement = getattr(asked.statement, "element", asked.statement)  # of select(...).from_statement(...)
        changed = getattr(statement, "table", None)
        for mapper, owners in self.followed.items():
            if any(changed in each.tables for each in mapper.self_and_descendants):
                warnings.warn(_remark(str(changed), mapper, owners), UntrackedStatement, stacklevel=_stacklevel())


@dataclass(slots=True)
class FlushNotes:
    """What one flush does to rows that are tracked, and who is to be refreshed at its end: by connection, each once.

    The methods that are named after events of mappers are called for each object of a hierarchy that is heard.
    """

    tracker: Tracker
    session: Session
    flush: UOWTransaction
    owed: dict[Connection, dict[Key, None]] = field(default_factory=dict)
    before: dict[State, list[Key]] = field(default_factory=dict)
    saved: dict[State, Connection] = field(default_factory=dict)
    # After its UPDATE an object whose values came by SQL expressions no longer counts as modified.
    changed: set[State] = field(default_factory=set)

    def before_insert(self, connection: Connection, state: State) -> None:
        """Has the new object the key of one that is deleted in this flush, perhaps of a sibling class, then SQLAlchemy
        updates the row of that one, and asks no more than this before."""
        self._follows(connection, state.mapper)
        self.changed.add(state)
        key = state.mapper.identity_key_from_instance(state.obj())
        if (replaced := self.session.identity_map.get(key)) is not None:
            self.before_delete(connection, inspect(replaced))

    def before_update(self, connection: Connection, state: State) -> None:
        """SQLAlchemy asks for every object that was touched, also where no value differs."""
        if self._follows(connection, state.mapper):
            if _is_changed(state):
                self.changed.add(state)
            self._read_all(connection, state, is_deleted=False)

    def before_delete(self, connection: Connection, state: State) -> None:
        if self._follows(connection, state.mapper):
            self._read_all(connection, state, is_deleted=True)
            self._owe(connection, self.before[state])
            # By now a relationship with post_update has set its column to null in the row.
            owners = self.tracker.owners(state.mapper)
            self._owe(connection, _known(state.mapper, owners, _loaded(state, owners))[0])

    def after_insert(self, connection: Connection, state: State) -> None:
        if self._follows(connection, state.mapper):
            self.saved[state] = connection

    after_update = after_insert

    def finish(self) -> None:
        """When all rows are written: columns of relationships with post_update come last."""
        unread: dict[tuple[Connection, Mapper[Any]], list[State]] = {}
        for state, connection in self.saved.items():
            # A listener of the program may have changed it after we were asked.
            if state in self.changed or _is_changed(state) or _had_expression(state):
                known, unknown = _known(state.mapper, self.tracker.owners(state.mapper), state.dict)
                self._owe(connection, [*self.before.get(state, ()), *known])
                if unknown:
                    unread.setdefault((connection, state.mapper), []).append(state)
        for (connection, mapper), states in unread.items():
            identities = [tuple(mapper.primary_key_from_instance(state.obj())) for state in states]
            for _, keys in _stored(connection, mapper, self.tracker.owners(mapper), identities):
                self._owe(connection, keys)
        self._link()

    def _link(self) -> None:
        """The other side of many-to-many collections that changed: it need not know of the collection."""
        members: dict[Mapper[Any], dict[State, None]] = {}
        for state, (is_deleted, _) in self.flush.states.items():
            for member in _linked(state, is_deleted):
                if member.key is not None and self.tracker.owners(member.mapper):
                    members.setdefault(member.mapper, {})[member] = None
        for mapper, states in members.items():
            connection = self.session.connection(bind_arguments={"mapper": mapper})
            self._follows(connection, mapper)
            self._read(connection, mapper, states, is_deleted=False)
            for state in states:
                self._owe(connection, self.before[state])

    def _follows(self, connection: Connection, mapper: Mapper[Any]) -> bool:
        """Asked for before the row is written: a connection in autocommit is refused then."""
        followed = bool(self.tracker.owners(mapper))
        if followed and connection not in self.owed:
            require_transaction(connection, ConnectionKind.SQLALCHEMY)
            self.owed[connection] = {}
        return followed

    def _owe(self, connection: Connection, keys: Iterable[Key]) -> None:
        self.owed[connection].update(dict.fromkeys(keys))

    def _read_all(self, connection: Connection, state: State, is_deleted: bool) -> None:
        """All rows of the hierarchy that this flush updates, or deletes, before the first of them: by one query for
        each class, in the same order in each flush. A session with shards has a connection for each object."""
        if state in self.before:
            return
        hierarchy: dict[Mapper[Any], list[State]] = {state.mapper: [state]}
        if self.session.connection_callable is None:
            for each, what in self.flush.states.items():
                if what == (is_deleted, False) and each.key is not None:
                    hierarchy.setdefault(each.mapper, []).append(each)
        for mapper in state.mapper.base_mapper.self_and_descendants:
            self._read(connection, mapper, hierarchy.get(mapper, ()), is_deleted)

    def _read(self, connection: Connection, mapper: Mapper[Any], states: Iterable[State], is_deleted: bool) -> None:
        """Whom the rows belong to, as long as this transaction runs. Nothing is read where the primary key says it."""
        owners = self.tracker.owners(mapper)
        names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        asked: dict[OwnerKeys, None] = {}
        found: dict[Identity, State] = {}
        for state in states:
            if state not in self.before:
                identity: Identity = state.identity or ()
                self.before[state], unknown = _known(mapper, owners, dict(zip(names, identity, strict=True)))
                asked.update(dict.fromkeys(unknown))
                found[identity] = state
        lock = {"key_share": not is_deleted}  # the lock that UPDATE takes, or DELETE
        for identity, keys in _stored(connection, mapper, list(asked), list(found), lock):
            if identity in found:
                self.before[found[identity]] += keys
            else:  # the key was set as another type than the row's, such as a UUID as text
                self._owe(connection, keys)


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


def _mapper(model: type[Any]) -> Mapper[Any]:
    mapper = inspect(model, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise WrongArgument(f"track: {model!r} is not a mapped class")
    return mapper


def _owners(model: type[Any], owners: object) -> list[OwnerKeys]:
    given = [owners] if isinstance(owners, (str, OwnerColumn)) else owners
    if not isinstance(given, Sequence) or not given:
        raise WrongArgument(f"track: {model.__name__} has no owner. {_REMEDY}")
    return [_keys(_mapper(model), OwnerColumn(each) if isinstance(each, str) else each) for each in given]


_REMEDY: Final = 'Give an entity type such as "article", by("article", Comment.article_id), or a list of these'


def _keys(mapper: Mapper[Any], owner: object) -> OwnerKeys:
    name = mapper.class_.__name__
    if not (isinstance(owner, OwnerColumn) and isinstance(owner.entity_type, str) and owner.entity_type):
        raise WrongArgument(f"track: an owner of {name} has no entity type. {_REMEDY}")
    if owner.attribute is not None:
        routing = None if owner.routing is None else _column(mapper, owner.routing)
        return OwnerKeys(owner.entity_type, _column(mapper, owner.attribute), routing)
    if len(mapper.primary_key) != 1:
        several = f'track: the key of {name} has several columns. Name one: by("{owner.entity_type}", {name}.x)'
        raise WrongArgument(several)
    return OwnerKeys(owner.entity_type, mapper.get_property_by_column(mapper.primary_key[0]).key, None)


def _column(mapper: Mapper[Any], attribute: object) -> str:
    name = mapper.class_.__name__
    if not isinstance(attribute, QueryableAttribute):
        raise WrongArgument(f"track: {attribute!r} is no attribute of {name}. Give the attribute itself: {name}.x")
    of: Any = attribute.class_
    stored = attribute.key in mapper.column_attrs and isinstance(mapper.columns[attribute.key], Column)
    if not stored or not issubclass(mapper.class_, of):
        raise WrongArgument(f"track: {attribute} is no column of {name}. Name the column of the key")
    return attribute.key


def _is_changed(state: State) -> bool:
    """`is_modified` does not know of `tag.articles.append(article)` while `article.tags` was never loaded."""
    target = state.obj()
    if target is None or state.session is None:  # what is changed is kept alive
        return False
    return state.session.is_modified(target) or any(
        get_history(target, each.key, _PENDING).has_changes() for each in state.mapper.relationships
    )


def _had_expression(state: State) -> bool:
    """After an UPDATE, a column whose value came by an SQL expression is to be loaded again."""
    return any(isinstance(state.mapper.columns.get(name), Column) for name in state.expired_attributes)


def _loaded(state: State, owners: Iterable[OwnerKeys]) -> dict[str, object]:
    """The owners' attributes as they were loaded, without those that were not."""
    histories = {name: state.attrs[name].history for owner in owners for name in owner.names}
    loaded = {name: [*(each.deleted or each.unchanged or ())] for name, each in histories.items()}
    return {name: values[0] for name, values in loaded.items() if values}


def _linked(state: State, is_deleted: bool) -> Iterator[State]:
    """What came into many-to-many collections of the object, or left them."""
    for each in state.mapper.relationships:
        target = state.obj()
        if each.secondary is None or each.viewonly or target is None:
            continue
        history = get_history(target, each.key, _PENDING)
        for member in history.sum() if is_deleted else [*history.added, *history.deleted]:
            if member is not None:
                yield inspect(member)


def _known(
    mapper: Mapper[Any], owners: Iterable[OwnerKeys], values: Mapping[str, object]
) -> tuple[list[Key], list[OwnerKeys]]:
    """The keys that these values tell in PostgreSQL's text, and the owners whose key only the row tells."""
    keys: list[Key] = []
    unknown: list[OwnerKeys] = []
    for owner in owners:
        if all(name in values and _has_text(values[name], mapper.columns[name].type) for name in owner.names):
            keys += _key(owner, [None if values[name] is None else str(values[name]) for name in owner.names])
        else:
            unknown.append(owner)
    return keys, unknown


def _has_text(value: object, kind: object) -> bool:
    """Types of the program's own may write another value than the object has."""
    plain = type(kind).__module__.startswith("sqlalchemy.") and not isinstance(kind, _WITH_OTHER_TEXT)
    return plain and (value is None or isinstance(kind, _WITH_TEXT.get(type(value), ())))


def _stored(
    connection: Connection,
    mapper: Mapper[Any],
    owners: Sequence[OwnerKeys],
    identities: Sequence[Identity],
    lock: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Identity, list[Key]]]:
    """By the rows, in PostgreSQL's text. Locked by their primary keys' order, as in each other flush."""
    if not owners:
        return
    key = mapper.primary_key
    columns = [mapper.columns[name] for owner in owners for name in owner.names]
    asked = select(*key, *(cast(each, Text) for each in columns)).select_from(mapper.persist_selectable).order_by(*key)
    if lock is not None:
        asked = asked.with_for_update(of=columns, **lock)
    part = _MOST_PARAMETERS // len(key)
    for start in range(0, len(identities), part):
        for row in connection.execute(asked.where(tuple_(*key).in_(identities[start : start + part]))):
            texts = iter(row[len(key) :])
            keys = [found for owner in owners for found in _key(owner, [next(texts) for _ in owner.names])]
            yield tuple(row[: len(key)]), keys


def _key(owner: OwnerKeys, texts: Sequence[str | None]) -> list[Key]:
    id, routing = [*texts, None][:2]
    return [] if id is None else [(owner.entity_type, id, routing)]
