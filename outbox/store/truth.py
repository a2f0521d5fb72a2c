"""Reads what PostgreSQL says the index should hold: the view, or each entity's newest event. Writes nothing.

A type that the view keeps is read from the view; any other from the events, which needs the entity index.
`PostgresTruth` answers a comparison, `PostgresPages` a copy, a page at a time in key order.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from uuid import UUID

import psycopg
from psycopg import sql

from outbox.errors import DocumentsUnavailable, OutboxError
from outbox.policy.audit import Actor
from outbox.policy.document import PAGE_BYTES, refused
from outbox.policy.drift import Key, Truth
from outbox.policy.entity_type import KeptBy
from outbox.policy.outcome import Code
from outbox.ports import Document
from outbox.store.documents import GONE, UNREAD, ViewDocuments
from outbox.store.entity_events import MOST_TYPES, SCAN_LIMIT_MS, EntityEvents, rows, rows_of
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.events import Wanted, last_version, raise_version
from outbox.store.lookup_in_parts import NOT_READ, LookupLimits
from outbox.store.pool import Database, TopicStore
from outbox.store.view_shape import ViewShape


class NeedsEntityIndex(OutboxError):
    """Without a view of documents each entity's newest event is what counts, and that needs an index, or every page
    would read the whole table. Run `outbox migrate --by-entity`, or create the view (OUTBOX_DOCUMENTS names it). With
    OUTBOX_SOURCE=kafka the table does not have all events: only the view helps."""

    exit_code = 78


class PostgresTruth(TopicStore, topic="truth"):
    """What one comparison reads from PostgreSQL. Every call is a short transaction of its own."""

    def __init__(
        self,
        database: Database,
        view: str,
        limits: LookupLimits = LookupLimits(),  # noqa: B008
        *,
        has_all_events: bool = True,
    ) -> None:
        super().__init__(database)
        self._has_all_events = has_all_events
        self._documents = ViewDocuments(database, view, batch_bytes=PAGE_BYTES, limits=limits)
        self._events = EntityEvents(database)
        self._view = view

    # What there is

    @property
    def by_entity(self) -> bool:
        """Whether events can say what a document should be. Where Kafka has them, the table has exceptions only: by
        those, every other document of their types would be an orphan."""
        return self._has_all_events and self._events.by_entity

    @cached_property
    def has_view(self) -> bool:
        return self._documents.usable()

    def kept_by_view(self, entity_type: str) -> bool:
        """As declared. A type that nobody has declared is the view's where the view has rows of it."""
        if entity_type not in self._kept_by_view:
            self._kept_by_view[entity_type] = self.has_view and bool(self._documents.types_in_view([entity_type]))
        return self._kept_by_view[entity_type]

    def routed_by_view(self) -> bool:
        return self.has_view and "routing" in self._shape.columns

    def types(self) -> list[str]:
        """The declared types and those of the view, as far as they can be walked. Raises NeedsEntityIndex."""
        if not self.has_view and not self.by_entity:
            raise NeedsEntityIndex
        return [kind for kind in self._types if self.by_entity or self.kept_by_view(kind)]

    def out_of_sight(self) -> list[str]:
        """Types that cannot be walked: kept by payloads, and no index finds their newest events."""
        return [] if self.by_entity else [kind for kind in self._types if not self.kept_by_view(kind)]

    @cached_property
    def _types(self) -> list[str]:
        query, named = self._in_view("view_types") if self.has_view else None, {"most": MOST_TYPES}
        found = rows(self._database, query, named, SCAN_LIMIT_MS) if query else []
        return sorted({*self._kept_by_view, *(row[0] for row in found)})

    @cached_property
    def _kept_by_view(self) -> dict[str, bool]:
        """By type. What is not declared is added when it is asked for."""
        declared = PostgresEntityTypes(self._database).read()[1]
        return {kind: about.kept_by is KeptBy.VIEW for kind, about in declared.items()}

    # Walking

    def keys(self, entity_type: str, after: str | None, limit: int, until: str | None = None) -> list[str]:
        """One page of a type's ids, in the order of their own type. After what no id can be comes the first page;
        up to what no id can be, nothing can be read."""
        if not self.kept_by_view(entity_type):
            return self._events.keys(entity_type, after, limit, until)
        if until is not None and not all(self._shape.id.names(bound) for bound in (until, after or until)):
            raise DocumentsUnavailable(f"the ids of {self._view} have another type than when the work began")
        after = after if after is None or self._shape.id.names(after) else None
        query = self._shape.query(self._sql["view_keys"], after=after, until=until)
        named = {"entity_type": entity_type, "after": after, "until": until, "limit": limit}
        try:
            return [row[0] for row in rows(self._database, query, named)]
        except psycopg.DataError as error:
            detail = f"{self._view} cannot list its keys: SQLSTATE {error.sqlstate}, {type(error).__name__}"
            raise DocumentsUnavailable(detail) from error

    def present(self, keys: Sequence[Key]) -> frozenset[Key]:
        """Those that should have a document; cheaper than `load`, which builds it."""
        in_view, rest = self._parted(keys)
        found = rows_of(self._database, self._in_view("view_present"), in_view, self._shape.id.names) if in_view else []
        there = {in_view[row[0] - 1] for row in found}
        return frozenset(there | (self._events.present(rest) if rest and self.by_entity else set()))

    def load(
        self, keys: Sequence[Key], *, whole: bool = False, done: bool = False, by_scan: bool = False
    ) -> list[Truth]:
        """What is said of each, in order. Large documents come only with `whole`: one at a time.

        `done` asks for what the index was made from, where events are asked: not for what is still on its way.
        `by_scan` reads all events where no entity index is: right for one entity that a person asks for.
        """
        in_view, rest = self._parted(keys)
        found = dict(self._from_view(in_view, whole))
        if rest and (by_scan or self.by_entity):
            found |= self._events.newest(rest, whole=whole, done=done)
        else:
            found |= {key: Truth(key, foreign="its type is kept by payloads, and no index finds them") for key in rest}
        return [found[key] for key in keys]

    def _parted(self, keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        viewed = {kind for kind in {key.entity_type for key in keys} if self.kept_by_view(kind)}
        return [k for k in keys if k.entity_type in viewed], [k for k in keys if k.entity_type not in viewed]

    def _from_view(self, keys: Sequence[Key], whole: bool) -> Iterator[tuple[Key, Truth]]:
        wanted = [Wanted(UUID(int=place), *key) for place, key in enumerate(keys)]
        loaded = self._read_all(wanted, whole)
        for want, key in zip(wanted, keys, strict=True):
            document = loaded[want.id]
            failure = None if document.failure is None else document.failure.error
            text = None if document.body is None else document.body.decode()
            size = (document.size_bytes or 0) if text is None and failure is None else 0
            yield key, Truth(key, text, None, document.routing, failure, size, routed=document.routed)

    def _read_all(self, wanted: Sequence[Wanted], whole: bool) -> Mapping[UUID, Document]:
        """Slow documents use up the time of a lookup: asks again. Each round reads one at least, or raises."""
        loaded: dict[UUID, Document] = {}
        while unread := [want for want in wanted if loaded.get(want.id, UNREAD).failure is NOT_READ]:
            loaded |= self._documents.load(unread, whole=whole)
        return loaded

    # What the events say besides

    def backlog_waits(self) -> bool:
        return self._events.backlog_waits()

    def open_of(self, keys: Sequence[Key]) -> frozenset[Key]:
        return self._events.open_of(keys)

    def failed_of(self, keys: Sequence[Key]) -> Mapping[Key, int]:
        return self._events.failed_of(keys)

    def _in_view(self, name: str) -> sql.Composed:
        return self._shape.query(self._sql[name])

    @cached_property
    def _shape(self) -> ViewShape:
        shape = self._documents.shape()
        shape.check()
        return shape


class PostgresPages:
    """What one copy reads from PostgreSQL. `actor`: who is said to have moved the sequence of versions on."""

    def __init__(self, database: Database, truth: PostgresTruth, view: str, actor: Actor) -> None:
        self._database = database
        self._truth = truth
        self._documents = ViewDocuments(database, view, batch_bytes=PAGE_BYTES)
        self._actor = actor

    def page(
        self, entity_type: str, after: str | None, limit: int, until: str | None = None
    ) -> list[tuple[str, Document]]:
        """Documents after a key and up to another; large ones without a body. Empty: there are no more."""
        if self._truth.kept_by_view(entity_type):
            found = self._documents.page(entity_type, after, limit, until)
            if found is not None:
                return found
        while ids := self._truth.keys(entity_type, after, limit, until):
            read = zip(ids, self.documents(entity_type, ids), strict=True)
            if there := [(id, each) for id, each in read if each.size_bytes is not None or each.failure is not None]:
                return there
            after = ids[-1]
        return []

    def documents(self, entity_type: str, ids: Sequence[str], *, whole: bool = False) -> list[Document]:
        """The same entities once more, in order; those that are gone too."""
        truths = self._truth.load([Key(entity_type, id) for id in ids], whole=whole, done=True)
        return [_document_of(truth) for truth in truths]

    def draw(self) -> int:
        return self._documents.draw()

    def last_version(self) -> int:
        return last_version(self._database)

    def raise_version(self, seen: int) -> None:
        raise_version(self._database, seen, self._actor)


def _document_of(truth: Truth) -> Document:
    if truth.failure is not None:
        return GONE._replace(failure=refused(truth.failure, Code.PAYLOAD_INVALID))
    if truth.text is None and not truth.size_bytes:
        return GONE._replace(version=truth.version, routed=truth.routed)
    body = None if truth.text is None else truth.text.encode()
    size = truth.size_bytes if body is None else len(body)
    return Document(body, size, truth.version, None, truth.routing, truth.routed)
