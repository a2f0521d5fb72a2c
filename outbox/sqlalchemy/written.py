"""The ids of the events that a session wrote, for `Outbox.wait`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

if TYPE_CHECKING:
    AnySession = Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]

_WRITTEN: Final = "outbox.written"


def written(session: AnySession) -> list[UUID]:
    """The ids of the events of the session's last transaction that wrote any and is committed; for `Outbox.wait`."""
    return list(written_ids(session).committed)


@dataclass(slots=True)
class WrittenIds:
    """The ids of a session's events. They count when the outermost transaction is committed."""

    committed: list[UUID] = field(default_factory=list)
    open: dict[SessionTransaction, list[UUID]] = field(default_factory=dict)  # a savepoint's apart


def written_ids(session: AnySession) -> WrittenIds:
    found: WrittenIds = session.info.setdefault(_WRITTEN, WrittenIds())
    return found


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def remember(session: Session, ids: Iterable[UUID]) -> None:
    if (transaction := _innermost(session)) is not None:
        written_ids(session).open.setdefault(transaction, []).extend(ids)


def keep_committed(session: Session) -> None:
    """Also of a savepoint, whose events are those of the transaction around it from then on."""
    transaction, written = _innermost(session), written_ids(session)
    if transaction is None or not (ids := written.open.pop(transaction, [])):
        return
    if transaction.parent is None:
        written.committed = ids
    else:
        written.open.setdefault(transaction.parent, []).extend(ids)


def forget_ended(session: Session, ended: SessionTransaction) -> None:
    """However it ended (rollback, an error, close), what was not committed before is gone."""
    written_ids(session).open.pop(ended, None)
