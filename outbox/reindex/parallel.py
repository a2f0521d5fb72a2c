"""Spreads a rebuild, a backfill or a comparison over processes: plans its parts, starts an engine, follows. Copies and
compares nothing itself; the table of parts says what is left, whoever is killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from outbox.errors import OutboxError, UsageError
from outbox.reindex.parts import (
    MOST_PROCESSES,
    PartsProgress,
    Work,
    cut,
    number_of_parts,
    planned,
    processes,
)
from outbox.reindex.rebuild_steps import dead_owner

if TYPE_CHECKING:
    from outbox.reindex.key_bounds import KeyBounds
    from outbox.reindex.part_table import PostgresParts

LOCAL: Final = "local"
ENGINES: Final = (LOCAL, "spark")


class PartsStuck(OutboxError):
    """Some parts end every process that takes them, after six tries each. Their keys are in
    `search_outbox_rebuild_parts` (state open). Find what ends the processes (memory, a signal), then continue: rebuild
    and backfill with `--resume`, verify and repair by running them again."""


class PartsGone(OutboxError):
    """Parts of this work were deleted from `search_outbox_rebuild_parts` while it ran, so keys may be left out. Run the
    command again, a backfill without `--resume`; a rebuild with it, because its comparison finds what was left out."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What a person says about it. No number of processes: by the cores, and only where it is worth it."""

    processes: int | None = None
    engine: str = LOCAL
    master: str | None = None

    def check(self) -> None:
        if self.processes is not None and not 1 <= self.processes <= MOST_PROCESSES:
            raise UsageError(f"--parallel must be from 1 to {MOST_PROCESSES}")
        if self.engine not in ENGINES:
            raise UsageError(f"--engine must be one of {', '.join(ENGINES)}")
        if self.master is not None and self.engine == LOCAL:
            raise UsageError("--master goes with --engine spark only")


class PartJob(NamedTuple):
    """What every process of one work must know. `share`: the rate is that of all together."""

    kind: str
    id: int
    rate: float
    share: int
    by: str
    options: Mapping[str, Any] = {}


class PartEngine(Protocol):
    """Processes that take parts, wherever they run."""

    def start(self, job: PartJob, table: PostgresParts) -> None: ...
    def tend(self, progress: PartsProgress) -> None:
        """Waits a moment, and replaces who died. Raises what a process reported."""
        ...

    def stop(self) -> None:
        """No process of ours is left after it."""
        ...


@dataclass(slots=True)
class Parallel:
    table_of: Callable[[Work], PostgresParts]
    space: Callable[[], KeyBounds]
    engine_of: Callable[[Spread, int], PartEngine]
    in_view: Callable[[str], bool]
    cores: Callable[[], int]
    spread: Spread = field(default_factory=Spread)

    def at_once(self, documents: int, rate: float) -> int:
        return processes(self.spread.processes, self.cores(), documents, rate)

    def estimate(self, types: Sequence[str]) -> int:
        """How many documents the planner expects, where counting them takes too long."""
        space = self.space()
        return sum(space.estimate(each, in_view=self.in_view(each)) for each in types)

    def copy(
        self,
        work: Work,
        types: Sequence[str],
        documents: int,
        rate: float,
        by: str,
        on_progress: Callable[[PartsProgress], None],
    ) -> None:
        """Planned once; every type has a part at least: one that has no key is done at once."""
        at_once, table = self.at_once(documents, rate), self.table_of(work)
        if not table.exist():
            table.plan(list(planned(self.ranges(types, at_once))))
        self.run(work, PartJob(work.kind.value, work.id, rate, at_once, by), on_progress)

    def ranges(self, types: Sequence[str], at_once: int) -> dict[str, list[tuple[str | None, str | None]]]:
        """For one process there is nothing to cut: it goes on at the cursor of its part."""
        if at_once == 1:
            return {entity_type: [(None, None)] for entity_type in types}
        space = self.space()
        found: dict[str, list[tuple[str | None, str | None]]] = {}
        for entity_type in types:
            viewed = self.in_view(entity_type)
            documents = space.estimate(entity_type, in_view=viewed)
            parts = number_of_parts(documents, at_once)
            keys = space.keys(entity_type, parts, in_view=viewed) if parts > 1 or not viewed else ()
            found[entity_type] = cut(keys, parts if viewed else max(1, len(keys)))
        return found

    def run(self, work: Work, job: PartJob, on_progress: Callable[[PartsProgress], None]) -> None:
        """Until every part is done. Whatever ends it, no process is left, and the table says what is."""
        table = self.table_of(work)
        table.free([owner for owner in table.owners() if dead_owner(owner)])
        table.try_again()
        before = table.progress()
        on_progress(before)  # whoever was killed after its last part has not added it up
        if not before.open:
            return
        engine = self.engine_of(self.spread, job.share)
        try:
            engine.start(job._replace(share=min(job.share, before.open)), table)
            while True:
                progress = table.progress()
                if progress.parts < before.parts:
                    raise PartsGone(f"{progress.parts} of {before.parts} are left")
                on_progress(progress)
                if not progress.open:
                    return
                if progress.stuck:
                    raise PartsStuck(f"{progress.stuck} of {progress.parts}")
                engine.tend(progress)
        finally:
            engine.stop()
