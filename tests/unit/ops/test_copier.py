"""Copying: a page is drawn before it is read, and read again when it is old or a server was down; two are written
at once."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from outbox.errors import ElasticsearchDown
from outbox.policy.document import Naming
from outbox.policy.drift import Key
from outbox.policy.outcome import Failure, Outcome, Reason, Stale
from outbox.policy.places import NotedPlace
from outbox.ports import BulkAction, Document, WriteReport
from outbox.reindex import copier
from outbox.reindex.copier import PATIENCE_SECONDS, Copier, DocumentPage, SecondIndexLost
from outbox.reindex.pacing import JobPace
from tests.fixtures.events import Time
from tests.fixtures.sinks import MemorySink


def document(text: str) -> Document:
    return Document(text.encode(), len(text), None)


GONE = Document(None, None, None)


@dataclass
class Table:
    """Articles by id; every draw and every read is kept in order."""

    rows: dict[str, str]
    calls: list[str] = field(default_factory=list)
    last: int = 0
    routings: dict[str, str] | None = None  # by id, where the view says them

    def _of(self, id: str) -> Document:
        if self.routings is None:
            return document(self.rows[id]) if id in self.rows else GONE
        if id not in self.rows:
            return GONE._replace(routed=True)
        return document(self.rows[id])._replace(routing=self.routings[id], routed=True)

    def draw(self) -> int:
        self.calls.append("draw")
        self.last += 1
        return self.last

    def page(
        self, entity_type: str, after: str | None, limit: int, until: str | None = None
    ) -> list[tuple[str, Document]]:
        self.calls.append("read")
        rows = [(id, self._of(id)) for id in sorted(self.rows) if after is None or id > after]
        return [(id, found) for id, found in rows if until is None or id <= until][:limit]

    def documents(self, entity_type: str, ids: Sequence[str], *, whole: bool = False) -> list[Document]:
        self.calls.append("read")
        return [self._of(id) for id in ids]

    def last_version(self) -> int:
        return self.last

    def raise_version(self, seen: int) -> None:
        self.calls.append(f"raise to {seen}")
        self.last = max(self.last, seen)


@dataclass
class Book:
    """Places as PostgreSQL keeps them."""

    calls: list[str]
    rows: dict[tuple[Key, bool, str], int] = field(default_factory=dict)
    cleared: list[NotedPlace] = field(default_factory=list)

    def note(self, places: Sequence[NotedPlace]) -> None:
        self.calls.append("note")
        for key, gone, routing, drawn in places:
            self.rows[key, gone, routing] = max(drawn, self.rows.get((key, gone, routing), 0))

    def of(self, keys: Sequence[Key]) -> dict[Key, list[NotedPlace]]:
        self.calls.append("of")
        return {key: [NotedPlace(*at, drawn) for at, drawn in self.rows.items() if at[0] == key] for key in keys}

    def clear(self, places: Sequence[NotedPlace]) -> None:
        self.cleared += places


@dataclass
class Slow(MemorySink):
    """Each write takes so many seconds; `meanwhile` happens during the first."""

    time: Time = field(default_factory=Time)
    seconds: list[float] = field(default_factory=list)
    meanwhile: list[object] = field(default_factory=list)
    actions: list[BulkAction] = field(default_factory=list)

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        self.actions += actions
        report = super().write(actions, deadline_seconds)
        self.time.passes(self.seconds.pop(0) if self.seconds else 0.0)
        while self.meanwhile:
            self.meanwhile.pop()()  # type: ignore[operator]
        return report


@dataclass
class Scripted(MemorySink):
    """Gives these replies, one per write; `meanwhile` happens before each."""

    replies: list[Outcome] = field(default_factory=list)
    meanwhile: list[Callable[[], None]] = field(default_factory=list)
    time: Time = field(default_factory=Time)
    versions: list[int] = field(default_factory=list)

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        self.versions += [action.version for action in actions]
        return WriteReport([self.replies.pop(0) for _ in actions])


KEY = Key("article", "1")


def copying(table: Table, sink: MemorySink, old_seconds: float = 30.0, pace: JobPace | None = None) -> Copier:
    naming = Naming(True, lambda _: "index")
    source: Any = table
    made = Copier(source, sink, naming, naming.index_of, Book(table.calls), pace or JobPace(0), old_seconds=old_seconds)
    if isinstance(sink, Slow | Scripted):
        made.clock, made.rest = sink.time, sink.time.passes
    return made


def texts(sink: Slow) -> dict[str, str]:
    return {id: body.decode() for (_, id), (_, body) in sink.documents.items()}


def test_a_version_is_drawn_before_each_page_is_read() -> None:
    table, sink = Table({"1": "one", "2": "two"}), Slow()
    found = list(copying(table, sink).part("article", None, None))
    assert [(last, written.count) for last, written in found] == [("2", 2)]
    assert table.calls == ["draw", "read", "draw", "read"]
    assert {version for version, _ in sink.documents.values()} == {1}


def test_what_took_long_to_be_written_is_read_again_and_what_is_gone_by_then_is_deleted() -> None:
    """Its delete came and was forgotten before our write: nobody else would remove it."""
    table, sink = Table({"1": "one", "2": "two"}), Slow(seconds=[31.0])
    sink.meanwhile.append(lambda: (table.rows.pop("2"), table.rows.update({"1": "newer"})))
    ((_, written),) = copying(table, sink).part("article", None, None)
    assert texts(sink) == {"article:1": "newer"}
    assert written.count == 2
    assert len(sink.tombstones) == 1


# Refused again and again


def test_a_document_is_newer_only_if_it_is_refused_under_a_number_drawn_after_its_first_refusal() -> None:
    """After the first one a colleague may have raised the sequence: then the version that is there was ahead."""
    table = Table({"1": "one"})
    sink = Scripted(replies=[Stale(900), Stale(950)], meanwhile=[lambda: table.raise_version(900)])
    sink.meanwhile.append(lambda: table.raise_version(950))
    ((_, written),) = copying(table, sink).part("article", None, None)
    assert (written.newer, written.count, written.refusals) == (1, 0, [])
    assert sink.versions == [1, 901]


def test_a_document_that_meets_a_version_ahead_each_time_is_refused_and_never_counted_as_newer() -> None:
    table, sink = Table({"1": "one"}), Scripted(replies=[Stale(900), Stale(1900), Stale(2900)])
    ((_, written),) = copying(table, sink).part("article", None, None)
    assert (written.newer, written.count) == (0, 0)
    assert [refusal.id for refusal in written.refusals] == ["article:1"]
    assert "had not given out" in written.refusals[0].error
    assert [call for call in table.calls if "raise" in call] == ["raise to 900", "raise to 1900", "raise to 2900"]


def test_what_was_written_too_late_three_times_is_refused_and_not_done() -> None:
    """Each time its delete may have been forgotten before the write: what is there may be back from the dead."""
    table, sink = Table({"1": "one"}), Slow(seconds=[31.0, 31.0, 31.0])
    ((_, written),) = copying(table, sink).part("article", None, None)
    assert written.count == 0
    assert "30 s" in written.refusals[0].error
    table, sink = Table({"1": "one"}), Slow(seconds=[31.0, 31.0])
    ((_, written),) = copying(table, sink).part("article", None, None)
    assert (written.count, written.refusals) == (1, [])


# Places


def placed(sink: Slow, routing: str, *, clears: bool = True) -> tuple[Copier, Book, Table]:
    table = Table({"1": "one"}, routings={"1": routing}, last=10)
    made = copying(table, sink)
    book = made.places = Book(table.calls)
    made.clears = clears
    return made, book, table


@pytest.mark.parametrize("clears", [True, False], ids=["in place", "a new index, whose old one has the place"])
def test_a_place_is_noted_before_the_write_and_every_other_is_left_after_it_under_its_own_number(clears: bool) -> None:
    """Where the document is stays known, whoever is killed after the write."""
    made, book, table = placed(sink := Slow(), "new", clears=clears)
    sink.meanwhile.append(lambda: table.calls.append("written"))
    book.rows[KEY, False, "old"] = 7
    list(made.part("article", None, None))
    assert table.calls == ["draw", "read", "note", "written", "of", "draw", "read"]
    assert book.rows == {(KEY, False, "old"): 7, (KEY, False, "new"): 11}
    assert [(a.version, a.routing, a.body) for a in sink.actions] == [(11, "new", b"one"), (7, "old", None)]
    assert book.cleared == [NotedPlace(KEY, False, "old", 7)] * clears


def test_who_wrote_late_leaves_the_place_that_a_colleague_has_moved_from() -> None:
    """The colleague drew later, and noted another place: the highest number stays."""
    made, book, _ = placed(sink := Slow(), "old")
    sink.meanwhile.append(lambda: book.rows.update({(KEY, False, "new"): 12}))
    list(made.part("article", None, None))
    assert [(a.version, a.routing, a.body) for a in sink.actions] == [(11, "old", b"one"), (11, "old", None)]
    assert book.cleared == [NotedPlace(KEY, False, "old", 11)]


def test_one_that_is_gone_at_the_second_read_is_removed_from_every_place_and_keeps_none() -> None:
    made, book, table = placed(sink := Slow(seconds=[31.0]), "here")
    sink.meanwhile.append(lambda: table.rows.pop("1"))
    list(made.part("article", None, None))
    assert sink.documents == {}
    assert {(place.gone, place.routing) for place in book.cleared} == {(False, "here"), (True, "")}
    assert book.rows[KEY, True, ""] > book.rows[KEY, False, "here"]


def test_what_is_refused_stays_where_it_was() -> None:
    refused = Failure(Reason.DETERMINISTIC, "no such field")
    made, book, _ = placed(Slow(refuse=lambda action: refused if action.body else None), "new")
    book.rows[KEY, False, "old"] = 7
    ((_, written),) = made.part("article", None, None)
    assert [refusal.error for refusal in written.refusals] == ["no such field"]
    assert book.cleared == []


def test_a_server_that_is_down_is_waited_for_until_a_limit() -> None:
    table, sink = Table({"1": "one"}), Slow(away=Failure(Reason.CONNECT, "no route"))
    made = copying(table, sink)
    alive: list[float] = []

    def waits() -> None:
        alive.append(sink.time())
        if len(alive) == 3:
            sink.away = None

    made.alive = waits
    ((_, written),) = made.part("article", None, None)
    assert (written.count, len(alive)) == (1, 3)
    sink.away = Failure(Reason.CONNECT, "no route")
    began = sink.time()
    made.alive = lambda: None
    with pytest.raises(ElasticsearchDown, match="no route"):
        list(made.part("article", None, None))
    assert sink.time() - began >= PATIENCE_SECONDS


def test_an_index_that_cannot_be_written_to_ends_it() -> None:
    sink = Slow(refuse=lambda _: Failure(Reason.ES_BLOCKED, "read only"))
    with pytest.raises(SecondIndexLost, match="index: read only"):
        copying(Table({"1": "one"}), sink).write(DocumentPage("article", [("1", document("one"))], 1, 0.0))


@dataclass
class Gates(MemorySink):
    """A write of a document begins when those that are named for it have been written, and fails as a test sets."""

    after: dict[str, str] = field(default_factory=dict)
    fails: dict[str, Failure] = field(default_factory=dict)
    written: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))
    order: list[str] = field(default_factory=list)

    def write(self, actions: Sequence[BulkAction], deadline_seconds: float) -> WriteReport:
        (action,) = actions
        if before := self.after.get(action.id):
            assert self.written[before].wait(10), f"{before} is not written beside {action.id}"
        if failure := self.fails.get(action.id):
            return WriteReport([failure])
        report = super().write(actions, deadline_seconds)
        self.order.append(action.id)
        self.written[action.id].set()
        return report


@pytest.fixture
def one_a_page(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(copier, "PAGE", 1)
    return Table({str(n): f"text {n}" for n in range(1, 6)})


def test_a_page_that_fails_is_where_it_ends_though_the_next_one_is_written(one_a_page: Table) -> None:
    """So the cursor that was kept last is before both, and whoever resumes writes the second one twice."""
    sink = Gates(after={"article:2": "article:3"}, fails={"article:2": Failure(Reason.ES_BLOCKED, "read only")})
    told: list[str] = []
    with pytest.raises(SecondIndexLost):
        told.extend(last for last, _ in copying(one_a_page, sink).part("article", None, None))
    assert told == ["1"]
    assert "article:3" in sink.order
    sink = Gates(documents=sink.documents)
    rest = copying(one_a_page, sink).part("article", "1", None)
    assert [(last, written.count) for last, written in rest] == [("2", 1), ("3", 1), ("4", 1), ("5", 1)]
    assert len(sink.documents) == 5
