"""`outbox backfill`: what people say to a backfill of the index in use, and its cursor. The copying is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outbox.errors import Conflict, DependencyDown, OutboxError
from outbox.policy import inputs as read
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.reindex import BackfillRun
from outbox.ports import Refusal
from outbox.reindex.parallel import Parallel
from outbox.reindex.parts import PartsProgress, Work, WorkKind
from outbox.reindex.rebuild_steps import dead_owner

if TYPE_CHECKING:
    from outbox.reindex.tables import PostgresBackfills
    from outbox.store.truth import PostgresTruth

BUSY_RATE: Final = 2_000.0  # documents per second while events wait for the projectors


class IndexLost(OutboxError):
    """The index cannot be written to: it is missing, blocked or forbidden. Make it with `outbox index create`, or fix
    the cause (`outbox index check` names it), and continue with `outbox backfill --resume`."""


class NotKeptByView(OutboxError):
    """This entity type is not kept by the view: its documents come from payloads, or nobody has any. Have the view keep
    it with `outbox types set TYPE view`, or correct what `outbox verify` finds with `outbox repair`; nothing was
    changed."""

    exit_code = 2


class AtWork(Conflict):
    """A backfill is at work. Wait for it, or stop it first; the lease of a killed one lasts fifteen seconds."""


class RebuildUnderWay(Conflict):
    """A rebuild is under way, and the index beside the one in use would lack what a backfill writes. Finish or cancel
    it first (`outbox rebuild --status`), or run `outbox refresh --type TYPE --all`, whose events are written to both;
    nothing was written."""


class NothingToResume(Conflict):
    """There is no backfill that stopped half-way. Start one with `outbox backfill`; nothing was changed."""


@dataclass(frozen=True, slots=True)
class BackfillDesk:
    """`declare` answers which of these types the view keeps, after it has declared those that nobody had. `note`
    notes where the index holds documents of these types, and answers what it cannot follow. `rebuilding` says which
    rebuild of their index is not over."""

    backfills: PostgresBackfills
    view: Callable[[], PostgresTruth]
    declare: Callable[[Sequence[str], Actor], Sequence[str]]
    note: Callable[[Sequence[str], Actor], Iterator[Sequence[Refusal]]]
    rebuilding: Callable[[Sequence[str]], str]
    estimate: Callable[[Sequence[str]], int]
    parallel: Parallel

    def start(self, types: Sequence[str], actor: Actor, reason: str) -> BackfillRun:
        """Whatever is wrong with the wish is said here, before anything starts. No types: all of the view."""
        reason = read.reason(reason)
        chosen = self.kept_by_view(types, actor)
        self.check_rebuild(chosen)
        newest = self.backfills.newest()
        about = {"started_by": actor.name, "reason": reason, "entity_types": chosen, "total": self.estimate(chosen)}
        begun = self.backfills.begin(dead_owner(newest.owner if newest else None), **about)
        if begun is None:
            raise AtWork(newest.owner or "" if newest else "")
        return begun

    def kept_by_view(self, wanted: Sequence[str], actor: Actor) -> list[str]:
        view = self.view()
        chosen = sorted(set(wanted) or filter(view.kept_by_view, view.types()))
        kept = self.declare([kind for kind in chosen if view.kept_by_view(kind)], actor)
        if refused := sorted(set(chosen) - set(kept)):
            raise NotKeptByView(", ".join(refused))
        if not chosen:
            raise NotKeptByView("the view has no entity at all")
        return chosen

    def resume(self) -> BackfillRun:
        newest = self.backfills.newest()
        if newest is None or newest.status == "finished":
            raise NothingToResume
        self.check_rebuild(newest.entity_types)
        taken = self.backfills.take(newest.id, dead_owner(newest.owner))
        if taken is None:
            raise AtWork(newest.owner or "")
        return taken

    def check_rebuild(self, types: Sequence[str]) -> None:
        if found := self.rebuilding(types):
            raise RebuildUnderWay(found)

    def run(
        self, run: BackfillRun, actor: Actor, rate: float, on_page: Callable[[int, int, str], None] = lambda *_: None
    ) -> BackfillRun:
        """To its end, or until it is stopped; then the row says where `--resume` goes on."""
        try:
            self._copy(run, actor, rate, on_page)
        except BaseException as ended:
            with suppress(DependencyDown):  # its lease runs out by itself
                self.backfills.end(run.id, "running", getattr(ended, "message", type(ended).__name__))
            raise
        ended_as = self._newest(run)
        self.backfills.end(run.id, "finished", entries=[_entry(ended_as, actor)])
        return self._newest(run)

    def _copy(self, run: BackfillRun, actor: Actor, rate: float, on_page: Callable[[int, int, str], None]) -> None:
        """In parts, each with a cursor; this process keeps the lease and adds up."""
        noted = 0
        # Where the view says no routing, there are no places.
        for refusals in self.note(run.entity_types, actor) if self.view().routed_by_view() else ():
            noted += len(refusals)
            self.backfills.note_refusals(run.id, refusals)
            self._keep(run, run.written, run.newer, noted)

        def follow(now: PartsProgress) -> None:
            self._keep(run, now.written, now.newer, now.refused + noted)
            on_page(now.done, max(run.total or 0, now.done), now.remark)

        work = Work(WorkKind.BACKFILL, run.id)
        self.parallel.copy(work, run.entity_types, run.total or 0, rate, actor.name, follow)

    def _keep(self, run: BackfillRun, written: int, newer: int, refused: int) -> None:
        if not self.backfills.gather(run.id, written, newer, refused):
            raise AtWork("it was taken over")

    def _newest(self, run: BackfillRun) -> BackfillRun:
        newest = self.backfills.newest()
        return run if newest is None or newest.id != run.id else newest


def _entry(run: BackfillRun, actor: Actor) -> Entry:
    detail = {
        "backfill": run.id,
        "entity_types": list(run.entity_types),
        "written": run.written,
        "newer": run.newer,
        "refused": run.refused,
    }
    return Entry(Action.BACKFILL_SUMMARY, actor, run.reason, detail=detail)
