"""Who spreads a work over processes: what it tells its engine, what it counts, and when it ends instead of going on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from outbox.reindex.parallel import Parallel, PartJob, PartsGone, Spread
from outbox.reindex.parts import PartsProgress, PlannedPart, Work, WorkKind

WORK = Work(WorkKind.VERIFICATION, 7)
JOB = PartJob("verification", 7, 10_000.0, 8, "alice")


@dataclass
class Table:
    """Says one progress after the other, and the last one for ever."""

    said: list[PartsProgress]
    planned: list[PlannedPart] = field(default_factory=list)

    def exist(self) -> bool:
        return bool(self.planned)

    def plan(self, parts: Sequence[PlannedPart]) -> None:
        self.planned += parts

    def clear(self) -> None:
        self.planned = []

    def free(self, owners: Sequence[str]) -> None: ...

    def try_again(self) -> None: ...

    def owners(self) -> Sequence[str]:
        return ()

    def numbers(self) -> Sequence[int]:
        return range(self.said[0].open)

    def progress(self) -> PartsProgress:
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def reports(self, read: Sequence[int]) -> Sequence[Any]:
        return ()


@dataclass
class Engine:
    jobs: list[PartJob] = field(default_factory=list)
    stops: int = 0

    def start(self, job: PartJob, table: Any) -> None:
        self.jobs.append(job)

    def tend(self, progress: PartsProgress) -> None: ...

    def stop(self) -> None:
        self.stops += 1


class NoKeys:
    """A type of which nobody knows where to cut it."""

    def estimate(self, entity_type: str, *, in_view: bool) -> int:
        return 5_000_000

    def known(self, entity_type: str, *, in_view: bool) -> Sequence[str]:
        return ()

    def keys(self, entity_type: str, parts: int, *, in_view: bool) -> Sequence[str]:
        return ()


def spreading(table: Table, engine: Engine, processes: int | None = 8) -> Parallel:
    return Parallel(
        table_of=lambda _: cast(Any, table),
        space=cast(Any, NoKeys),
        engine_of=lambda *_: engine,
        in_view=lambda _: True,
        cores=lambda: 8,
        spread=Spread(processes),
    )


def test_parts_that_vanish_end_it_because_nobody_did_their_keys() -> None:
    """Without them all that is left is done: a comparison would find no drift in keys that it has not read."""
    table, engine, seen = Table([PartsProgress(parts=3, open=3), PartsProgress(parts=1, open=0)]), Engine(), list[int]()
    with pytest.raises(PartsGone, match="1 of 3"):
        spreading(table, engine).run(WORK, JOB, lambda now: seen.append(now.parts))
    assert engine.stops == 1


@pytest.mark.parametrize(("open_parts", "share"), [(1, 1), (3, 3), (32, 8)])
def test_the_rate_is_split_by_as_many_as_can_be_at_work(open_parts: int, share: int) -> None:
    engine = Engine()
    table = Table([PartsProgress(parts=40, open=open_parts), PartsProgress(parts=40, open=0)])
    spreading(table, engine).run(WORK, JOB, lambda _: None)
    assert [job.share for job in engine.jobs] == [share]


def test_what_is_done_at_a_resume_is_added_up_without_a_process() -> None:
    engine, written = Engine(), list[int]()
    table = Table([PartsProgress(parts=4, open=0, written=400)])
    spreading(table, engine).run(WORK, JOB, lambda now: written.append(now.written))
    assert (written, engine.jobs) == ([400], [])


def test_many_documents_that_nobody_can_cut_are_one_part() -> None:
    parallel = spreading(Table([PartsProgress()]), Engine())
    assert parallel.ranges(["article"], 8) == {"article": [(None, None)]}
