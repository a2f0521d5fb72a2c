"""What one process does with parts: takes one after the other, does it to its end, keeps its lease. Plans nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from outbox.errors import Conflict, DependencyDown
from outbox.ports import Refusal
from outbox.reindex.copier import Copier
from outbox.reindex.parts import RebuildPart

if TYPE_CHECKING:
    from outbox.reindex.part_table import PostgresParts

RENEW_SECONDS: Final = 4.0  # a lease of 15 s survives two renewals that fail


class PartLost(Conflict):
    """Another process has taken this part over, because its lease had run out. It goes on where this one was."""


class PartStopped(Exception):
    """Someone wants the process to end; the part goes on elsewhere, after its cursor."""


@dataclass(slots=True)
class PartWorker:
    parts: PostgresParts
    do: Callable[[RebuildPart], None]
    stop: Event = field(default_factory=Event)
    wake: Callable[[], None] = lambda: None
    renew_seconds: float = RENEW_SECONDS

    def end(self) -> None:
        """From another thread: the part that is at work ends after its page, and no other is begun."""
        self.stop.set()
        self.wake()

    def run(self) -> int:
        """Parts as long as there are any that nobody holds. How many were done here."""
        done = 0
        with self._beating():
            while not self.stop.is_set() and (part := self.parts.claim()) is not None:
                done += self._one(part)
        return done

    def _one(self, part: RebuildPart) -> bool:
        try:
            self.do(part)
        except (PartLost, PartStopped):
            return False
        return True

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """The lease is kept however long a page takes, and given back at the end."""
        over = Event()

        def beat() -> None:
            while not over.wait(self.renew_seconds):
                with suppress(DependencyDown):
                    self.parts.renew()

        thread = Thread(target=beat, name="part-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with suppress(DependencyDown):  # it runs out by itself
                self.parts.let_go()


@dataclass(slots=True)
class PartCopy:
    """Copies one part. The cursor moves on with every page, so that whoever goes on repeats a few pages at most."""

    parts: PostgresParts
    copier: Copier
    note: Callable[[Sequence[Refusal]], None]
    stop: Event

    def __call__(self, part: RebuildPart) -> None:
        assert part.entity_type is not None
        self.copier.alive = self._check
        with closing(self.copier.part(part.entity_type, part.after, part.high)) as pages:
            for last, written in pages:
                if written.refusals:
                    self.note(written.refusals)
                if not self.parts.wrote_page(part, last, written.count, written.newer, len(written.refusals)):
                    raise PartLost
                self._check()
        self._check()  # pages end early when someone wants the process to end
        if not self.parts.finish(part):
            raise PartLost

    def _check(self) -> None:
        if self.stop.is_set():
            raise PartStopped
