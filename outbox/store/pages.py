"""Reads documents to be copied into an index, a page at a time in key order. Writes none of them.

Entity types of the view come from the view, others from their newest done event, which needs the entity index.
"""

from collections.abc import Mapping, Sequence

from outbox.policy.audit import Actor
from outbox.policy.document import refused
from outbox.policy.drift import Key, Truth
from outbox.policy.memory import PAGE_BYTES
from outbox.policy.outcome import Code
from outbox.ports import Document
from outbox.store.documents import GONE, ViewDocuments
from outbox.store.events import last_version, raise_version
from outbox.store.pool import Database
from outbox.store.truth import PostgresTruth


class PostgresPages:
    """One copying's look at PostgreSQL. `actor`: who is said to have moved the sequence of versions on."""

    def __init__(self, database: Database, truth: PostgresTruth, view: str, actor: Actor) -> None:
        self._database = database
        self._truth = truth
        self._documents = ViewDocuments(database, view, batch_bytes=PAGE_BYTES)
        self._actor = actor

    def page(self, entity_type: str, after: str | None, limit: int) -> list[tuple[str, Document]]:
        """Entities that have a document, after a key. Empty: there are no more. Large ones come without a body."""
        if self._truth.in_view(entity_type):
            found = self._documents.page(entity_type, after, limit)
            if found is not None:
                return found
        while ids := self._truth.keys(entity_type, after, limit):
            there = [(id, d) for id, d in zip(ids, self.documents(entity_type, ids), strict=True) if _is_there(d)]
            if there:
                return there
            after = ids[-1]
        return []

    def documents(self, entity_type: str, ids: Sequence[str], *, whole: bool = False) -> list[Document]:
        """The same entities once more, in order; those that are gone too."""
        truths = self._truth.load([Key(entity_type, id) for id in ids], whole=whole, done=True)
        return [_document(truth) for truth in truths]

    def routings(self, entity_type: str, ids: Sequence[str]) -> Mapping[str, str | None]:
        """As their newest events say."""
        found = self._truth.newest_versions([Key(entity_type, id) for id in ids])
        return {key.entity_id: routing for key, (_, routing) in found.items()}

    def draw(self) -> int:
        return self._documents.draw()

    def last_version(self) -> int:
        return last_version(self._database)

    def raise_version(self, seen: int) -> None:
        raise_version(self._database, seen, self._actor)


def _is_there(document: Document) -> bool:
    return document.size_bytes is not None or document.failure is not None


def _document(truth: Truth) -> Document:
    routed = truth.routed or truth.routing is not None
    if truth.failure is not None:
        return GONE._replace(failure=refused(truth.failure, Code.PAYLOAD_INVALID))
    if truth.text is None and not truth.size_bytes:
        return GONE._replace(version=truth.version)
    body = None if truth.text is None else truth.text.encode()
    size = truth.size_bytes if body is None else len(body)
    return Document(body, size, truth.version, None, truth.routing, routed)
