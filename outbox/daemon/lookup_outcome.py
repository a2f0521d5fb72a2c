"""What a lookup of documents means for those who asked: found, gone, or not to be believed. Records nothing."""

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from outbox.daemon.brakes import Brakes
from outbox.errors import DocumentsUnavailable
from outbox.facts import Announce, SinkPaused, SinkResumed
from outbox.policy.document import Stack, refused
from outbox.policy.event import DELETE
from outbox.policy.outcome import Code, Failure, Reason
from outbox.policy.settle import LOOKUPS_BRAKED, Judged, Settlement, view_away
from outbox.ports import Clock, Document, DocumentSource, EventStore

DOCUMENTS: Final = "documents"  # the target that is paused while the view cannot be read
NO_VIEW: Final = refused(
    "the payload is null and there is no view of documents; give a payload or create search_documents",
    Code.PAYLOAD_MISSING,
)
NOT_GONE: Final = refused(
    "the view has no entity of this type, whose documents come with their events' payloads: nothing was deleted; "
    "send a payload, or add the type to the view",
    Code.ENTITY_NOT_FOUND,
)


class CheckedLookups(NamedTuple):
    """`stacks` go on, but for those with a failure in `bad`, by the id of their newest event."""

    stacks: Sequence[Stack]
    bad: Mapping[UUID, Failure]
    verdicts: Sequence[Judged]


@dataclass(slots=True)
class Lookups:
    """One process's judgement of its view; lanes share it, because the brake counts over all of them."""

    store: EventStore
    documents: DocumentSource | None
    brakes: Brakes
    announce: Announce
    clock: Clock
    _away_since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, stacks: Sequence[Stack], found: Mapping[UUID, Document]) -> CheckedLookups:
        """What payloads have made is not gone. An entity that has a delete says nothing about the view: the brake for
        lookups does not count it."""
        self._back()
        if all(map(_is_there, found.values())):  # as nearly always
            self.brakes.admit_missing(len(found), 0)
            return CheckedLookups(stacks, {}, ())
        asked = [stack for stack in stacks if stack.head.id in found and stack.head.op != DELETE]
        missing = {id for stack in asked if _is_gone(found[id := stack.head.id])}
        bad = {id: document.failure for id, document in found.items() if document.failure is not None}
        if missing:
            bad |= dict.fromkeys(self._made_by_payloads(stacks, missing), NOT_GONE)
            missing -= bad.keys()
        counted = [stack.head for stack in asked if not _has_delete(stack)]
        missing &= {event.id for event in counted}
        if missing:
            missing -= self.store.deleted([event for event in counted if event.id in missing])
        if self.brakes.admit_missing(len(counted), len(missing)):
            return CheckedLookups(stacks, bad, ())
        held = [stack for stack in stacks if stack.head.id in missing]
        return CheckedLookups([s for s in stacks if s.head.id not in missing], bad, _for_all(held, LOOKUPS_BRAKED))

    def away(self, error: DocumentsUnavailable, asking: Sequence[Stack]) -> list[Judged]:
        failure = Failure(Reason.DOCUMENTS_UNAVAILABLE, error.detail or error.message)
        with self._lock:
            first = self._away_since is None
            self._away_since = self._away_since or self.clock()
        if first:
            self.announce(SinkPaused(DOCUMENTS, failure.reason, failure.error))
        return _for_all(asking, view_away(failure))

    def _back(self) -> None:
        with self._lock:
            since, self._away_since = self._away_since, None
        if since is not None:
            self.announce(SinkResumed(DOCUMENTS, Reason.DOCUMENTS_UNAVAILABLE, self.clock() - since))

    def _made_by_payloads(self, stacks: Sequence[Stack], missing: Container[UUID]) -> list[UUID]:
        """Events of types that the view does not have at all: what payloads have made is not deleted for that."""
        assert self.documents is not None
        events = [stack.head for stack in stacks if stack.head.id in missing]
        types = {kind for kind in {event.entity_type for event in events} if self.documents.made_by_payloads(kind)}
        return [event.id for event in events if event.entity_type in types]


def _for_all(stacks: Sequence[Stack], settlement: Settlement) -> list[Judged]:
    return [(event, settlement) for stack in stacks for event in (stack.head, *stack.older)]


def _has_delete(stack: Stack) -> bool:
    return any(event.op == DELETE for event in (stack.head, *stack.older))


def _is_gone(document: Document) -> bool:
    return document.size_bytes is None and document.failure is None


def _is_there(document: Document) -> bool:
    return document.size_bytes is not None and document.failure is None
