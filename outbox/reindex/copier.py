"""Copies PostgreSQL's documents into an index, page by page in key order. Moves no step of a rebuild.

Late and double writes are harmless: what the view says is written under a version that was drawn before the page was
read, a payload under its own; Elasticsearch keeps the higher. Deletes come by events. Where the view says a routing,
each place is noted before the write, and every place but the newest is left after it.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from outbox import placing
from outbox.errors import ElasticsearchDown, OutboxError
from outbox.fast_path import all_written
from outbox.placing import PlaceBook, Placed
from outbox.policy.document import Naming
from outbox.policy.drift import DriftFinding, Key, Kind
from outbox.policy.event import HIGHEST_FOLLOWED
from outbox.policy.outcome import Failure, FailureClass, Outcome, Stale
from outbox.policy.places import NotedPlace
from outbox.ports import BulkAction, Clock, Document, Refusal, Sink, WriteReport
from outbox.reindex.pacing import JobPace, read_ahead

if TYPE_CHECKING:
    from outbox.store.truth import PostgresPages

PAGE: Final = 1_000
IN_FLIGHT: Final = 2  # pages with Elasticsearch at once: with one it rests while we read its answer and the next page
DEADLINE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 600.0  # with an Elasticsearch that is down; then `--resume` continues later
LONGEST_WAIT_SECONDS: Final = 10.0
# An index in use may forget a delete after 60 s (`index.gc_deletes`): what was read longer ago could bring it back.
OLD_SECONDS: Final = 30.0
MOST_ROUNDS: Final = 3  # of one page


class SecondIndexLost(OutboxError):
    """The new index cannot be written to: it is gone, blocked or forbidden. Production continues in the old one; fix
    the cause and begin again with `outbox rebuild --resume`, or cancel it with `--cancel`."""


class DocumentPage(NamedTuple):
    """Entities of one type with their documents, and the version for those that have none of their own."""

    entity_type: str
    found: Sequence[tuple[str, Document]]
    drawn: int
    drawn_at: float

    @property
    def last(self) -> str:
        return self.found[-1][0]


@dataclass(slots=True)
class Copied:
    """What became of documents. `newer`: the index had a later version already."""

    count: int = 0
    newer: int = 0
    refusals: list[Refusal] = field(default_factory=list)

    def add(self, other: "Copied") -> None:
        self.count += other.count
        self.newer += other.newer
        self.refusals += other.refusals


@dataclass(slots=True)
class Copier:
    source: "PostgresPages"
    sink: Sink
    naming: Naming
    index_of: Callable[[str], str]
    places: PlaceBook
    pace: JobPace
    clears: bool = (
        False  # places: the index in use is written to. A new one has an old one beside it, which has them too
    )
    lost: type[OutboxError] = SecondIndexLost
    old_seconds: float = math.inf  # a rebuild's index remembers deletes for days
    alive: Callable[[], None] = lambda: None  # called while waiting, so that a lease is kept
    clock: Clock = time.monotonic
    ending: Event = field(default_factory=Event)
    rest: Callable[[float], object] = field(init=False)

    def __post_init__(self) -> None:
        self.rest = self.ending.wait  # who stops it need not wait for an Elasticsearch that is down

    def part(self, entity_type: str, after: str | None, until: str | None) -> Generator[tuple[str, Copied], None, None]:
        """Every page of one type after a key and up to another, each with its last key, in key order: all before it is
        written. Some are with Elasticsearch at a time, in any order; the next one is read meanwhile."""
        pages = self._read_type(entity_type, after, until)
        return read_ahead(pages, lambda page: (page.last, self.write(page)), IN_FLIGHT, self.ending)

    def correct(self, findings: Sequence[DriftFinding]) -> Copied:
        """What a comparison of the new index found: written again, and what is too much removed."""
        written = Copied()
        keys = [f.key for f in findings if f.key is not None and f.kind is not Kind.ORPHANED]
        for entity_type in sorted({key.entity_type for key in keys}):
            page = self._read(entity_type, [key.entity_id for key in keys if key.entity_type == entity_type])
            written.add(self.write(page._replace(found=[(id, d) for id, d in page.found if not _is_gone(d)])))
        orphans = [f for f in findings if f.kind is Kind.ORPHANED and f.held is not None]
        self._deliver([BulkAction(f.index, f.id, f.held or 0, f.routing, None) for f in orphans])
        return written

    # Reading

    def _read_type(self, entity_type: str, after: str | None, until: str | None) -> Iterator[DocumentPage]:
        while not self.ending.is_set() and (page := self._read_next(entity_type, after, until)).found:
            after = page.last
            yield page
            self.pace.took(len(page.found))  # before the next read, so that what was read does not grow old

    def _read_next(self, entity_type: str, after: str | None, until: str | None) -> DocumentPage:
        """The version first, then the read: what is written under it holds all that was committed before the draw."""
        drawn_at, drawn = self.clock(), self.source.draw()
        return DocumentPage(entity_type, self.source.page(entity_type, after, PAGE, until), drawn, drawn_at)

    def _read(self, entity_type: str, ids: Sequence[str]) -> DocumentPage:
        drawn_at, drawn = self.clock(), self.source.draw()
        return DocumentPage(
            entity_type, list(zip(ids, self.source.documents(entity_type, ids), strict=True)), drawn, drawn_at
        )

    def _read_again(self, page: DocumentPage) -> DocumentPage:
        """What is gone meanwhile is deleted where it was written: its own delete may be forgotten by now."""
        again = self._read(page.entity_type, [id for id, _ in page.found])
        pairs = zip(page.found, again.found, strict=True)
        return again._replace(found=[(id, _delete_of(was) if _is_gone(now) else now) for (id, was), (_, now) in pairs])

    def _is_old(self, page: DocumentPage) -> bool:
        return self.clock() - page.drawn_at > self.old_seconds

    # Writing

    def write(self, page: DocumentPage) -> Copied:
        """Until each document is accepted or refused. What was read too long ago is drawn and read once more; so is
        what met a higher version under a drawn one, which may be a colleague's or from before a restore. What that
        does not end is reported as refused, never as done."""
        total, met_before, why = Copied(), set[str](), ""
        for _ in range(MOST_ROUNDS):
            if self._is_old(page):
                page = self._read_again(page)
            written, met = self._write(page)
            if self._is_old(page):
                why = _TOO_OLD
                continue
            total.add(written)
            again = self._not_decided(met, met_before, total)
            if not again:
                return total
            page = self._read_again(page._replace(found=[pair for pair in page.found if pair[0] in again]))
            why = _MET_HIGHER
        total.refusals += [self._refusal(page, id, why) for id, _ in page.found]
        return total

    def _not_decided(self, met: Mapping[str, Stale], met_before: set[str], total: Copied) -> set[str]:
        """Of those who met a higher version under a drawn one. A version ahead is one that the sequence has not given
        out when the refusal is there. Any other is a later read's only under a number drawn after a first refusal: a
        colleague may have raised the sequence meanwhile."""
        last = self.source.last_version() if met else 0
        ahead = [current for stale in met.values() if (current := stale.current or 0) > last]
        if ahead:
            self.source.raise_version(max(ahead))
        again = {id for id, stale in met.items() if (stale.current or 0) > last or id not in met_before}
        total.newer += len(met) - len(again)
        met_before.update(met)
        return again

    def _write(self, page: DocumentPage) -> tuple[Copied, dict[str, Stale]]:
        """Beside what was written: who met a higher version under a drawn one."""
        written, met = Copied(), dict[str, Stale]()
        for portion in self._portions(page, written):
            for (id, document), outcome in zip(portion, self._placed(page, portion), strict=True):
                if isinstance(outcome, Failure):
                    written.refusals.append(self._refusal(page, id, outcome.error))
                elif not isinstance(outcome, Stale):
                    written.count += 1
                elif document.version is not None:
                    written.newer += 1
                elif (outcome.current or 0) > HIGHEST_FOLLOWED:
                    written.refusals.append(self._refusal(page, id, TOO_HIGH.format(outcome.current)))
                else:
                    met[id] = outcome
        return written, met

    def _placed(self, page: DocumentPage, portion: Sequence[tuple[str, Document]]) -> Sequence[Outcome]:
        documents = [
            Placed(self._action(page, id, document), _place(page, id, document) if document.routed else None)
            for id, document in portion
        ]
        return placing.write(self.places, documents, self._send, clears=self.clears).outcomes

    def _portions(self, page: DocumentPage, written: Copied) -> Iterator[Sequence[tuple[str, Document]]]:
        """Large documents one by one, each read when it is its turn; then all the others."""
        small = list[tuple[str, Document]]()
        for id, document in page.found:
            if document.failure is not None:
                written.refusals.append(self._refusal(page, id, f"unreadable: {document.failure.error}"))
            elif document.body is None and document.size_bytes:
                whole = self.source.documents(page.entity_type, [id], whole=True)[0]
                if whole.body is not None:
                    yield [(id, whole)]
            else:
                small.append((id, document))
        yield small

    def _action(self, page: DocumentPage, id: str, document: Document) -> BulkAction:
        version = page.drawn if document.version is None else document.version
        name = self.naming.id_of(Key(page.entity_type, id))
        return BulkAction(self.index_of(page.entity_type), name, version, document.routing, document.body)

    def _refusal(self, page: DocumentPage, id: str, error: str) -> Refusal:
        return Refusal(self.index_of(page.entity_type), self.naming.id_of(Key(page.entity_type, id)), error)

    # Sending

    def _send(self, actions: Sequence[BulkAction]) -> WriteReport:
        return WriteReport(self._deliver(actions))

    def _deliver(self, actions: Sequence[BulkAction]) -> Sequence[Outcome]:
        """A verdict on each: accepted, a newer version is there, or refused. Waits for a server that is down."""
        outcomes: list[Outcome] = list(self.sink.write(actions, DEADLINE_SECONDS).outcomes) if actions else []
        waited, delay = 0.0, 0.5
        while left := self._undecided(actions, outcomes):
            if waited >= PATIENCE_SECONDS:
                raise ElasticsearchDown(_error(outcomes[left[0]]))
            if self.ending.is_set():
                raise CancelledError
            self.alive()
            self.rest(delay)
            waited, delay = waited + delay, min(LONGEST_WAIT_SECONDS, delay * 2)
            report = self.sink.write([actions[place] for place in left], DEADLINE_SECONDS)
            for place, outcome in zip(left, report.outcomes, strict=True):
                outcomes[place] = outcome
        return outcomes

    def _undecided(self, actions: Sequence[BulkAction], outcomes: Sequence[Outcome]) -> list[int]:
        if all_written(outcomes):
            return []
        for action, outcome in zip(actions, outcomes, strict=True):
            if isinstance(outcome, Failure) and outcome.failure_class is FailureClass.SYSTEMIC:
                raise self.lost(f"{action.index}: {outcome.error}")
        return [
            place
            for place, outcome in enumerate(outcomes)
            if isinstance(outcome, Failure) and outcome.failure_class is FailureClass.TRANSIENT
        ]


TOO_HIGH: Final = "the index holds version {}, above 2^62: written by hand, and not followed; `outbox rebuild` helps"
_TOO_OLD: Final = "not written within 30 s of its read, three times: `outbox refresh` when Elasticsearch is quicker"
_MET_HIGHER: Final = "a version that the database had not given out was there, three times: `outbox refresh` it"


def _error(outcome: Outcome) -> str:
    return outcome.error if isinstance(outcome, Failure) else ""


def _is_gone(document: Document) -> bool:
    return document.size_bytes is None and document.failure is None


def _place(page: DocumentPage, id: str, document: Document) -> NotedPlace:
    gone = _is_gone(document)
    return NotedPlace(Key(page.entity_type, id), gone, "" if gone else document.routing or "", page.drawn)


def _delete_of(was: Document) -> Document:
    return was._replace(body=None, size_bytes=None, failure=None)
