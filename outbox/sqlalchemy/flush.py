"""What one flush does to tracked objects, and whom it is to refresh. Writes nothing.

Whom a row belongs to is asked of the row, not of the object: somebody else may have moved it since it was loaded. It is
read with a lock directly before SQLAlchemy writes it, so the flush takes its locks in the order that it has without us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import Column, Connection, inspect
from sqlalchemy.orm import InstanceState, Mapper, PassiveFlag, Session
from sqlalchemy.orm.attributes import get_history

from outbox.producers.connection import ConnectionKind
from outbox.producers.writing import require_transaction
from outbox.sqlalchemy.owners import OwnerKeys
from outbox.sqlalchemy.rows import Identity, Key, known, stored

if TYPE_CHECKING:
    from sqlalchemy.orm import UOWTransaction

# Changes of a collection that was never loaded, made from its other side.
_PENDING: Final = PassiveFlag.PASSIVE_NO_INITIALIZE | PassiveFlag.INCLUDE_PENDING_MUTATIONS

State: TypeAlias = InstanceState[Any]


@dataclass(slots=True)
class FlushNotes:
    """What one flush does to rows that are tracked, and who is to be refreshed at its end: by connection, each once.

    The methods that are named after events of mappers are called for each object of a hierarchy that is heard.
    """

    owners: Callable[[Mapper[Any]], list[OwnerKeys]]
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
            owners = self.owners(state.mapper)
            self._owe(connection, known(state.mapper, owners, _loaded(state, owners))[0])

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
                keys, unknown = known(state.mapper, self.owners(state.mapper), state.dict)
                self._owe(connection, [*self.before.get(state, ()), *keys])
                if unknown:
                    unread.setdefault((connection, state.mapper), []).append(state)
        for (connection, mapper), states in unread.items():
            identities = [tuple(mapper.primary_key_from_instance(state.obj())) for state in states]
            for _, keys in stored(connection, mapper, self.owners(mapper), identities):
                self._owe(connection, keys)
        self._link()

    def _link(self) -> None:
        """The other side of many-to-many collections that changed: it need not know of the collection."""
        members: dict[Mapper[Any], dict[State, None]] = {}
        for state, (is_deleted, _) in self.flush.states.items():
            for member in _linked(state, is_deleted):
                if member.key is not None and self.owners(member.mapper):
                    members.setdefault(member.mapper, {})[member] = None
        for mapper, states in members.items():
            connection = self.session.connection(bind_arguments={"mapper": mapper})
            self._follows(connection, mapper)
            self._read(connection, mapper, states, is_deleted=False)
            for state in states:
                self._owe(connection, self.before[state])

    def _follows(self, connection: Connection, mapper: Mapper[Any]) -> bool:
        """Asked for before the row is written: a connection in autocommit is refused then."""
        followed = bool(self.owners(mapper))
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
        owners = self.owners(mapper)
        names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        asked: dict[OwnerKeys, None] = {}
        found: dict[Identity, State] = {}
        for state in states:
            if state not in self.before:
                identity: Identity = state.identity or ()
                self.before[state], unknown = known(mapper, owners, dict(zip(names, identity, strict=True)))
                asked.update(dict.fromkeys(unknown))
                found[identity] = state
        lock = {"key_share": not is_deleted}  # the lock that UPDATE takes, or DELETE
        for identity, keys in stored(connection, mapper, list(asked), list(found), lock):
            if identity in found:
                self.before[found[identity]] += keys
            else:  # the key was set as another type than the row's, such as a UUID as text
                self._owe(connection, keys)


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
