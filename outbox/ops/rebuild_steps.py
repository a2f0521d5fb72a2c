"""What each step of a rebuild does: it may be killed anywhere and done again. When to take it is said elsewhere.

What daemons mirror to is changed first, waited for, and only then relied on: a step that needs all workers to write to
an index, or to leave it alone, begins after every live one has confirmed and all earlier batches are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from outbox.errors import OutboxError
from outbox.ops.backfill import Backfill, SecondIndexLost
from outbox.ops.comparing import Progress
from outbox.ops.crew import Crew
from outbox.ops.rebuild_errors import Broken, HeldByAnother, NotAlike, NotNow, TooManyRefused
from outbox.ops.rebuild_ports import NewIndex, Rebuilds, Verifying
from outbox.ops.verify import Verification, Wish
from outbox.policy.drift import DRIFT, Finding
from outbox.policy.rebuild import Rebuild, Status, Step
from outbox.ports import Refusal

DEFAULT_RATE: Final = 2_000.0
MOST_REFUSED: Final = 1_000
MOST_MENDED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person may say again at every resume."""

    rate: float = DEFAULT_RATE
    max_refused: int = MOST_REFUSED
    accept_drift: int = 0


@dataclass(slots=True)
class RebuildSteps:
    rebuilds: Rebuilds
    indices: NewIndex
    crew: Crew
    verify: Verifying
    make_backfill: Callable[[Rebuild, float], tuple[Backfill, Sequence[str]]]
    choices: Choices = field(default_factory=Choices)
    on_progress: Callable[[str, int, int, str], None] = lambda *_: None
    say: Callable[[str], None] = lambda _: None

    def act(self, rebuild: Rebuild) -> Rebuild | None:
        """Does what this step is for. None: nothing more happens by itself."""
        acts: Mapping[str, Callable[[Rebuild], Rebuild]] = {
            Step.CREATED: self.make_index,
            Step.MIRRORING: self._wait_for_mirrors,
            Step.BACKFILLING: self._fill,
            Step.VERIFYING: self._verify,
            Step.FINISHING: self._remove_unused,
            Step.CANCELLING: self._remove_new,
        }
        chosen = acts.get(rebuild.step)
        return None if chosen is None else chosen(rebuild)

    def make_index(self, rebuild: Rebuild) -> Rebuild:
        """The backfill's own needs are looked at first: what cannot be read cannot be copied."""
        try:
            self.make_backfill(rebuild, self.choices.rate)
            if not self.indices.exists(rebuild.new_index):
                options = rebuild.options or {}
                self.indices.create(rebuild.new_index, rebuild.mapping or {}, options.get("settings", {}))
        except OutboxError as error:
            if error.exit_code != 75:  # a server that is away is no verdict on the wish
                self.advance(rebuild, rebuild.step, Status.FAILED, error=error.message)
            raise
        self.say(f"made {rebuild.new_index}")
        return self.advance(rebuild, Step.MIRRORING, mirrors=[rebuild.new_index])

    def _wait_for_mirrors(self, rebuild: Rebuild) -> Rebuild:
        self.crew.wait(rebuild)
        return self.advance(rebuild, Step.BACKFILLING)

    def _fill(self, rebuild: Rebuild) -> Rebuild:
        backfill, types = self.make_backfill(rebuild, self.choices.rate)
        backfill.alive = lambda: self.crew.renew(rebuild)
        done = rebuild.written
        try:
            with closing(backfill.pages(types, rebuild.cursor)) as pages:
                for cursor, written in pages:
                    done += written.count
                    self._page_written(rebuild, cursor, written.count, written.refusals)
                    self.on_progress("copying", done, max(rebuild.total or 0, done), "")
        except SecondIndexLost as lost:
            self.rebuilds.give_up(rebuild, lost.detail)
            raise
        return self.advance(rebuild, Step.VERIFYING)

    def _page_written(
        self, rebuild: Rebuild, cursor: Mapping[str, Any], count: int, refusals: Sequence[Refusal]
    ) -> None:
        if refusals:
            self.rebuilds.refused(rebuild.id, refusals, len(refusals))
        refused = self.rebuilds.wrote_page(rebuild.id, cursor, count)
        if refused is None:
            self.not_broken(self.again(rebuild))
            raise HeldByAnother
        if refused > self.choices.max_refused:
            first = refusals[0] if refusals else None
            raise TooManyRefused(f"{refused:,} refused, {first.id}: {first.error}" if first else f"{refused:,} refused")

    def _verify(self, rebuild: Rebuild) -> Rebuild:
        """Compares; what differs is written once more and compared again, before a person is asked."""
        found = self._compare(rebuild)
        if found.report.drift and not self._acceptable(found):
            found = self._compare(rebuild)
        if not self._acceptable(found):
            self.advance(rebuild, Step.VERIFYING, verification_id=found.id, error=found.sentence)
            raise NotAlike(found.sentence)
        self.say(found.sentence)
        return self.advance(rebuild, Step.READY, verification_id=found.id)

    def _compare(self, rebuild: Rebuild) -> Verification:
        wrong: list[Finding] = []
        backfill, _ = self.make_backfill(rebuild, self.choices.rate)

        def keep(finding: Finding) -> None:
            if finding.kind in DRIFT and len(wrong) < MOST_MENDED:
                wrong.append(finding)

        def progress(seen: Progress) -> None:
            self.crew.renew(rebuild)
            self.on_progress(f"comparing {seen.phase}", seen.done, seen.estimate, f"{seen.drift:,} found")

        wish = Wish(
            rate=self.choices.rate,
            target=rebuild.target,
            index=rebuild.new_index,
            by=rebuild.started_by,
            rebuild=rebuild.id,
        )
        found = self.verify.run(wish, progress, keep)
        if wrong:
            written = backfill.mend(wrong)
            self.rebuilds.refused(rebuild.id, written.refusals, len(written.refusals))
        return found

    def _acceptable(self, found: Verification) -> bool:
        """A document whose newest event failed is as wrong in the old index."""
        return found.report.drift - found.report.failed <= self.choices.accept_drift

    def _remove_unused(self, rebuild: Rebuild) -> Rebuild:
        self.crew.wait(rebuild)
        unused = rebuild.new_index if rebuild.status == Status.ROLLED_BACK else rebuild.old_index
        self.indices.remove(unused)
        self.say(f"removed {unused}")
        status = Status.ROLLED_BACK if rebuild.status == Status.ROLLED_BACK else Status.FINISHED
        return self.advance(rebuild, Step.FINISHED, status)

    def _remove_new(self, rebuild: Rebuild) -> Rebuild:
        self.crew.wait(rebuild)
        self.indices.remove(rebuild.new_index)
        self.say(f"removed {rebuild.new_index}")
        return self.advance(rebuild, Step.CANCELLED, Status.CANCELLED)

    def begin_again(self, rebuild: Rebuild) -> Rebuild:
        """The new index has missed writes, deletes among them: only an empty one can be trusted."""
        if self.indices.alias(rebuild.target).index == rebuild.new_index:
            raise NotNow(f"{rebuild.target} stands for {rebuild.new_index} already; see --rollback")
        self.crew.wait(rebuild)
        self.indices.remove(rebuild.new_index)
        return self.advance(rebuild, Step.CREATED, Status.RUNNING, mirrors=[], reset=True)

    # Moving

    def advance(self, rebuild: Rebuild, step: Step | str, status: Status | None = None, **more: Any) -> Rebuild:
        moved = self.rebuilds.advance(rebuild, step, status, **more)
        if moved is None:
            self.not_broken(self.again(rebuild))
            raise HeldByAnother("it was moved by someone else meanwhile")
        return moved

    def again(self, rebuild: Rebuild) -> Rebuild:
        newest = self.rebuilds.newest()
        return rebuild if newest is None or newest.id != rebuild.id else newest

    def not_broken(self, rebuild: Rebuild) -> None:
        if rebuild.status == Status.BROKEN:
            raise Broken(rebuild.broken or "")
