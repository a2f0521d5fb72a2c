"""What a process of parts says of its error."""

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import pytest

from outbox.errors import ConfigurationError, DatabaseDown, ElasticsearchDown
from outbox.policy.document import Naming
from outbox.reindex.backfill import IndexLost
from outbox.reindex.copier import Copier
from outbox.reindex.pacing import JobPace
from outbox.reindex.part_processes import PartProcessFailed, reported_error, told_error
from outbox.reindex.part_work import PartCopy, PartLost, PartWorker
from outbox.reindex.parts import RebuildPart
from tests.fixtures.sinks import MemorySink
from tests.unit.ops.test_copier import Book, Table


def test_an_error_crosses_a_process_by_its_name_and_words() -> None:
    def crossed(error: Exception) -> Exception:
        return reported_error(orjson.loads(orjson.dumps(told_error(error))))

    lost = crossed(IndexLost("articles: 404"))
    assert isinstance(lost, IndexLost)
    assert lost.detail == "articles: 404"
    assert crossed(ElasticsearchDown("no reply")).exit_code == 75  # type: ignore[attr-defined]
    bug = crossed(ValueError("postgresql://u:secret@h/x"))
    assert isinstance(bug, PartProcessFailed)
    assert "secret" not in str(bug)
    assert isinstance(crossed(ConfigurationError([])), Exception)


def part(number: int, low: str | None = None, high: str | None = None, cursor: str | None = None) -> RebuildPart:
    return RebuildPart(number, number, "article", low, high, None, cursor)


@dataclass
class Parts:
    open: list[RebuildPart]
    pages: list[tuple[int, str, int]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    renewed: int = 0
    let_go_of: int = 0
    ours: bool = True

    def claim(self) -> RebuildPart | None:
        return self.open.pop(0) if self.open else None

    def renew(self) -> None:
        self.renewed += 1
        if self.renewed == 1:
            raise DatabaseDown

    def wrote_page(self, part: RebuildPart, cursor: str, written: int, newer: int, refused: int) -> bool:
        self.pages.append((part.number, cursor, written))
        return self.ours

    def counts(self, part: RebuildPart, compared: int, drift: int) -> bool:
        return True

    def finish(self, part: RebuildPart, report: Any = None) -> bool:
        self.done.append(part.number)
        return self.ours

    def let_go(self) -> None:
        self.let_go_of += 1


def copying(parts: Parts, stop: threading.Event, rows: dict[str, str]) -> tuple[PartCopy, MemorySink]:
    sink, naming = MemorySink(), Naming(True, lambda _: "index")
    copier = Copier(cast(Any, Table(rows)), sink, naming, naming.index_of, Book([]), JobPace(0))
    return PartCopy(cast(Any, parts), copier, lambda _: None, stop), sink


ROWS = dict.fromkeys("abcdef", "{}")


def test_parts_are_copied_in_turn_each_from_its_cursor_to_its_end() -> None:
    parts, stop = Parts([part(1, None, "b"), part(2, "b", "e", cursor="c"), part(3, "e", None)]), threading.Event()
    copy, _ = copying(parts, stop, ROWS)
    assert PartWorker(cast(Any, parts), copy, stop).run() == 3
    assert parts.pages == [(1, "b", 2), (2, "e", 2), (3, "f", 1)]
    assert (parts.done, parts.let_go_of) == ([1, 2, 3], 1)


def test_a_part_that_was_taken_over_is_left_alone_and_the_next_is_taken() -> None:
    parts, stop = Parts([part(1), part(2)], ours=False), threading.Event()
    copy, _ = copying(parts, stop, ROWS)
    with pytest.raises(PartLost):
        copy(part(1))
    assert PartWorker(cast(Any, parts), copy, stop).run() == 0
    assert parts.open == []


def test_the_lease_is_renewed_while_a_page_takes_long_and_an_outage_in_between_does_no_harm() -> None:
    parts, seen = Parts([part(1)]), threading.Event()

    def slow(_: RebuildPart) -> None:
        for _tries in range(3_000):
            if parts.renewed >= 3:
                seen.set()
                return
            threading.Event().wait(0.01)

    assert PartWorker(cast(Any, parts), slow, renew_seconds=0.01).run() == 1
    assert seen.is_set()
