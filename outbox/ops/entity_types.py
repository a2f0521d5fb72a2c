"""Declares entity types for a person: kept by the view or by payloads. A change brings the documents over.

It may be killed anywhere: the declaration says `moving` until they are, and the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from outbox.errors import Conflict
from outbox.policy import inputs as read
from outbox.policy.audit import Actor
from outbox.policy.entity_type import EntityType, KeptBy

if TYPE_CHECKING:
    from outbox.store.entity_types import PostgresEntityTypes

CHECK_SECONDS: Final = 0.25
RECORDS_SECONDS: Final = 35.0  # a worker on Kafka knows of a change after a second, and has one request in flight


class HasDocuments(Conflict):
    """The index in use holds documents of this type that the view made, under versions that no event has: payloads
    would be refused, or overwrite what is newer. Let ELASTIC_INDEX_MAP name a new index for the type, or remove its
    documents; then declare it. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class TypesDesk:
    """`any_documents`: whether the index holds one of the type. `bring_over` writes what the view has of it, and
    removes what only the index has; `check` raises where it may not now."""

    store: PostgresEntityTypes
    any_documents: Callable[[str], bool]
    check: Callable[[str], None]
    bring_over: Callable[[str, Actor, str], None]
    has_records: bool  # events come from Kafka
    rest: Callable[[float], object] = time.sleep

    def list(self) -> Sequence[Any]:
        return self.store.list()

    def set(
        self, entity_type: str, wanted: EntityType, actor: Actor, reason: str, say: Callable[[str], None]
    ) -> EntityType | None:
        """What it was. The cases:

        new, or the same           declared; one that was left half-way goes on
        from payloads to the view  declared, then every batch from before is over, then the documents are brought over
        from the view to payloads  only where the index has none of its documents
        """
        reason = read.reason(reason)
        was = self.store.read()[1].get(entity_type)
        if was == wanted:
            return was
        leaves_view = was is not None and was.kept_by is KeptBy.VIEW and wanted.kept_by is KeptBy.PAYLOAD
        if leaves_view and self.any_documents(entity_type):
            raise HasDocuments(entity_type)
        moves = wanted.kept_by is KeptBy.VIEW and was is not None and (was.moving or was.kept_by is KeptBy.PAYLOAD)
        if moves:
            self.check(entity_type)
        if was is None or was._replace(moving=False) != wanted or not moves:
            self.store.change(entity_type, wanted._replace(moving=moves), actor, reason, was)
        if moves:
            self._wait(say)
            self.bring_over(entity_type, actor, reason)
            self.store.change(entity_type, wanted, actor, reason, wanted._replace(moving=True))
        return was

    def _wait(self, say: Callable[[str], None]) -> None:
        if self.has_records:
            say(f"waiting {RECORDS_SECONDS:.0f} s for records in flight")
            self.rest(RECORDS_SECONDS)
        told = 0
        while batches := self.store.older_batches():
            if batches != told:
                say(f"waiting for {batches} batches from before")
            told = batches
            self.rest(CHECK_SECONDS)
