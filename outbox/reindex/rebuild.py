"""`outbox rebuild`: what people say to a rebuild, and whether it may be done now. The steps are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outbox.errors import UsageError
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.reindex import Rebuild, RebuildStatus, RebuildStep, next_index
from outbox.reindex.backfill import AtWork
from outbox.reindex.rebuild_steps import (
    Broken,
    HeldByAnother,
    InTheWay,
    NotNow,
    NoWayBack,
    RebuildSteps,
    dead_owner,
)

if TYPE_CHECKING:
    from outbox.reindex.tables import PostgresBackfills


@dataclass(slots=True)
class RebuildDesk:
    steps: RebuildSteps
    targets: Sequence[str]
    backfills: PostgresBackfills

    def newest(self) -> Rebuild | None:
        return self.steps.rebuilds.newest()

    def start(
        self, target: str, actor: Actor, reason: str, mapping: Mapping[str, Any] | None, settings: Mapping[str, Any]
    ) -> Rebuild:
        """Makes the row and the new index. Whatever is wrong with the wish is said here, before anything starts."""
        if target not in self.targets:
            raise UsageError(f"--target must be one of {', '.join(self.targets)}")
        newest = self.newest()
        if newest is not None and not newest.is_over:
            raise InTheWay(newest.sentence)
        if (filling := self.backfills.newest()) is not None and filling.status == "running" and filling.held:
            raise AtWork(filling.owner or "")
        begun = self.steps.rebuilds.begin(**self._wish(target, mapping, settings), started_by=actor.name, reason=reason)
        if begun is None:
            raise InTheWay
        return self.steps.make_index(begun)

    def _wish(self, target: str, mapping: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> dict[str, object]:
        """Settings and mapping of the old index stand where nothing else was said."""
        indices = self.steps.indices
        old = indices.alias(target).index
        return {
            "target": target,
            "old_index": old,
            "new_index": next_index(target, [*indices.names(target), old]),
            "mapping": dict(indices.mappings(old) if mapping is None else mapping),
            "options": {"settings": {**indices.settings(old), **settings}},
            "total": indices.count(old),
        }

    def take(self) -> Rebuild:
        newest = self.newest()
        if newest is None:
            raise NotNow("there has never been a rebuild here")
        taken = self.steps.rebuilds.take(newest.id, dead_owner(newest.owner))
        if taken is None:
            raise HeldByAnother(newest.owner or "")
        return taken

    def let_go(self, rebuild: Rebuild) -> None:
        self.steps.rebuilds.let_go(rebuild.id)

    def carry_on(self, rebuild: Rebuild) -> Rebuild:
        """From wherever it is until it waits for a person, or is over."""
        if rebuild.status == RebuildStatus.BROKEN:
            rebuild = self.steps.begin_again(rebuild)
        while (moved := self.steps.act(rebuild)) is not None:
            rebuild = moved
        return rebuild

    def swap(self, rebuild: Rebuild, actor: Actor, reason: str) -> Rebuild:
        """Both indexes are written to by name before the alias moves, so that neither misses a write in between."""
        steps, old, new = self.steps, rebuild.old_index, rebuild.new_index
        steps.not_broken(rebuild)
        if rebuild.step == RebuildStep.READY:
            rebuild = steps.advance(rebuild, RebuildStep.SWAPPING, mirrors=[new, old])
        if rebuild.step != RebuildStep.SWAPPING:
            raise NotNow(f"{rebuild.sentence}. It is swapped once it is ready")
        steps.crew.wait(rebuild)
        steps.not_broken(steps.again(rebuild))
        steps.indices.remember_deletes_as_usual(new)
        steps.indices.refresh(new)
        steps.indices.swap(rebuild.target, old, new)
        entries = [_entry(rebuild, actor, reason, new)]
        try:
            return steps.advance(rebuild, RebuildStep.SWAPPED, RebuildStatus.SWAPPED, mirrors=[old], entries=entries)
        except Broken:
            steps.indices.swap(rebuild.target, new, old)
            raise

    def rollback(self, rebuild: Rebuild, actor: Actor, reason: str) -> Rebuild:
        """The old index has had every write since the swap: going back is the alias's one move."""
        if rebuild.status != RebuildStatus.SWAPPED or rebuild.step != RebuildStep.SWAPPED:
            raise NotNow(f"{rebuild.sentence}. Only what is swapped and not finished can be rolled back")
        if rebuild.broken is not None:
            raise NoWayBack(rebuild.broken)
        steps, old = self.steps, rebuild.old_index
        steps.crew.wait(rebuild)
        steps.indices.refresh(old)
        steps.indices.swap(rebuild.target, rebuild.new_index, old)
        entries = [_entry(rebuild, actor, reason, old)]
        return steps.advance(rebuild, RebuildStep.ROLLED_BACK, RebuildStatus.ROLLED_BACK, mirrors=[], entries=entries)

    def finish(self, rebuild: Rebuild) -> Rebuild:
        """The index that the alias does not use goes, after the workers have let go of it."""
        steps = self.steps
        if rebuild.step in (RebuildStep.SWAPPED, RebuildStep.ROLLED_BACK):
            expected = rebuild.new_index if rebuild.step == RebuildStep.SWAPPED else rebuild.old_index
            if (now := steps.indices.alias(rebuild.target).index) != expected:
                raise NotNow(f"{rebuild.target} stands for {now}, not for {expected}: nothing was removed")
            rebuild = steps.advance(rebuild, RebuildStep.FINISHING, mirrors=[])
        if rebuild.step != RebuildStep.FINISHING:
            raise NotNow(f"{rebuild.sentence}. Only what is swapped or rolled back can be finished")
        return self.carry_on(rebuild)

    def cancel(self, rebuild: Rebuild) -> Rebuild:
        """Before the swap: the workers let go of the new index, and it is removed."""
        steps = self.steps
        if rebuild.status not in (RebuildStatus.RUNNING, RebuildStatus.BROKEN):
            raise NotNow(f"{rebuild.sentence}. It is too late to cancel; see --rollback")
        if steps.indices.alias(rebuild.target).index == rebuild.new_index:
            raise NotNow(f"{rebuild.target} stands for {rebuild.new_index} already: --resume, then --rollback")
        if rebuild.step != RebuildStep.CANCELLING:
            rebuild = steps.advance(rebuild, RebuildStep.CANCELLING, RebuildStatus.RUNNING, mirrors=[])
        return self.carry_on(rebuild)


def _entry(rebuild: Rebuild, actor: Actor, reason: str, now: str) -> Entry:
    was = rebuild.old_index if now == rebuild.new_index else rebuild.new_index
    detail = {"rebuild": rebuild.id, "target": rebuild.target, "from": was, "to": now, "refused": rebuild.refused}
    return Entry(Action.REBUILD_SWAPPED, actor, reason, detail=detail)
