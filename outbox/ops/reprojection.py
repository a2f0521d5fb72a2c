"""One entity, projected again because a person asks for it. Writes an event; the daemons do the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from outbox.errors import Conflict, DependencyDown, DocumentsUnavailable, NotFound
from outbox.policy import inputs as read
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.document import Address, Naming
from outbox.policy.drift import Key
from outbox.policy.repair_event import Reprojection, reprojection

if TYPE_CHECKING:
    from outbox.store.truth import PostgresTruth

LONGEST_TYPE = 200
LONGEST_ID = 512

Held = Callable[[Sequence[Address]], Sequence[int | None] | None]
"""The versions that Elasticsearch holds; None when it does not answer."""


Write = Callable[[Reprojection, Callable[[UUID, int], Entry]], tuple[UUID, int]]
"""The event and its audit row; the answer is its id and version."""


@dataclass(frozen=True, slots=True)
class Requested:
    """The event that was written."""

    id: UUID
    entity_type: str
    entity_id: str
    op: str
    event_version: int


class ScanTooLong(DependencyDown):
    """Without the entity index an entity's newest event is found by reading all events, and that took too long. Run
    `outbox migrate --by-entity`, or let the producer write an event; nothing was changed."""


class Unknown(Conflict):
    """Neither the view nor an event that counts says what this entity is; it could only be deleted, and what is
    unknown is never deleted. Replay a discarded event by its id, or let the producer write one; nothing was changed."""


@dataclass(frozen=True, slots=True)
class ProjectionDesk:
    source: Callable[[], PostgresTruth]
    held: Held
    naming: Naming
    write: Write

    def ask(self, entity_type: str, entity_id: str, actor: Actor, reason: str) -> Requested:
        """Raises NotFound where neither the view, nor an event, nor Elasticsearch knows the entity."""
        actor, reason = read.actor(actor.name, actor.source, actor.role), read.reason(reason)
        key = Key(read.line("entity_type", entity_type, LONGEST_TYPE), read.line("entity_id", entity_id, LONGEST_ID))
        asked = self._request(key)
        if asked is None:
            raise NotFound(f"entity {key.entity_type} {key.entity_id}")

        def entry(id: UUID, version: int) -> Entry:
            detail = {"op": asked.op, "version": version}
            entry = Entry(Action.EVENT_REQUESTED, actor, reason, event_id=id, detail=detail)
            return entry._replace(entity_type=key.entity_type, entity_id=key.entity_id)

        id, version = self.write(asked, entry)
        return Requested(id, key.entity_type, key.entity_id, asked.op, version)

    def _request(self, key: Key) -> Reprojection | None:
        source = self.source()
        with _patience(source):
            (truth,) = source.load([key], whole=True, by_scan=True)
        if truth.failure is not None:
            raise Conflict(f"its document cannot be read: {truth.failure}")
        (held,) = self.held([self.naming.address(*key, truth.routing)]) or [None]
        if truth.foreign is not None and held is not None:
            raise Unknown(f"{key.entity_type} {key.entity_id}")
        return reprojection(truth, held, viewed=source.kept_by_view(key.entity_type))


@contextmanager
def _patience(source: PostgresTruth) -> Iterator[None]:
    """Without the index it is the events that were too many, not the view that is gone."""
    try:
        yield
    except DocumentsUnavailable as error:
        if source.by_entity:
            raise
        raise ScanTooLong from error
