"""What each step of a rebuild does: it may be killed anywhere and done again. When to take it is said elsewhere.

What daemons mirror to is changed first, waited for, and only then relied on: a step that needs all workers to write to
an index, or to leave it alone, begins after every live one has confirmed and all earlier batches are over.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from outbox.daemon.reclaimer import pid_alive
from outbox.errors import Conflict, OutboxError
from outbox.policy.drift import DRIFT, DriftFinding
from outbox.policy.reindex import Rebuild, RebuildStatus, RebuildStep
from outbox.ports import Clock
from outbox.reindex.comparison import Progress
from outbox.reindex.copier import Copier, SecondIndexLost
from outbox.reindex.losses import Losses
from outbox.reindex.parts import PartsProgress, Work, WorkKind
from outbox.reindex.verify import Verification, Verify, VerifyOptions

if TYPE_CHECKING:
    from outbox.reindex.parallel import Parallel
    from outbox.reindex.tables import PostgresRebuilds
    from outbox.sink.new_index import ElasticNewIndex


class NotNow(Conflict):
    """The rebuild is not at a step that allows this. See `outbox rebuild --status`; nothing was changed."""


class InTheWay(Conflict):
    """A rebuild is not over yet, and there is only one at a time. See `outbox rebuild --status`; continue with
    `--resume`, cancel it with `--cancel` or, when it is swapped, end it with `--finish` or `--rollback`."""


class HeldByAnother(Conflict):
    """Another process works on this rebuild. Stop it first; the lease of a killed one lasts fifteen seconds."""


class Broken(Conflict):
    """A worker found that the other index could not be written to, and continued without it. Fix the cause, then begin
    again with `outbox rebuild --resume` (the new index is emptied), or cancel it with `--cancel`."""


class NoWayBack(Conflict):
    """The old index has missed writes since the swap, so that going back would lose them. Fix the new index, or
    rebuild again; `--finish` removes the old one."""


class TooManyRefused(OutboxError):
    """The new mapping refuses too many documents, and the copying has stopped. See `outbox rebuild --status` for the
    first hundred; cancel it with `--cancel`, or continue with `--resume --max-refused N`."""


class NotAlike(OutboxError):
    """The new index is not what PostgreSQL says, and nothing was swapped. See `outbox rebuild --status`; compare again
    with `--resume`, accept it with `--resume --accept-drift N`, or cancel it with `--cancel`."""


class WouldLose(OutboxError):
    """The old index holds documents that the new one lacks, and nothing in PostgreSQL explains it: their events are
    gone, or no entity has such an id. Nothing was swapped. See `outbox rebuild --status` for the first; have their
    producer write them again and `--resume`, accept it with `--resume --accept-loss N`, or cancel it with
    `--cancel`."""


class OutOfSight(OutboxError):
    """Not everything that the old index holds could be copied from PostgreSQL. Run `outbox migrate --by-entity` first,
    so that each entity's newest event can be found (with OUTBOX_SOURCE=kafka only the view can say it: `outbox types
    set TYPE view`); nothing was started."""

    exit_code = 78


DEFAULT_RATE: Final = 2_000.0
MOST_REFUSED: Final = 1_000
MOST_MENDED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person may say again at every resume."""

    rate: float = DEFAULT_RATE
    max_refused: int = MOST_REFUSED
    accept_drift: int = 0
    accept_loss: int = 0


@dataclass(slots=True)
class RebuildSteps:
    rebuilds: PostgresRebuilds
    indices: ElasticNewIndex
    crew: WorkerBarrier
    verify: Verify
    search_losses: Callable[[Rebuild, float, Callable[[int], None]], Losses]
    copier_of: Callable[[Rebuild, float], tuple[Copier, Sequence[str]]]
    parallel: Parallel
    choices: Choices = field(default_factory=Choices)
    on_progress: Callable[[str, int, int, str], None] = lambda *_: None
    say: Callable[[str], None] = lambda _: None

    def act(self, rebuild: Rebuild) -> Rebuild | None:
        """Does what this step is for. None: nothing more happens by itself."""
        acts: Mapping[str, Callable[[Rebuild], Rebuild]] = {
            RebuildStep.CREATED: self.make_index,
            RebuildStep.MIRRORING: self._wait_for_mirrors,
            RebuildStep.BACKFILLING: self._fill,
            RebuildStep.VERIFYING: self._verify,
            RebuildStep.FINISHING: self._remove,
            RebuildStep.CANCELLING: self._remove,
        }
        chosen = acts.get(rebuild.step)
        return None if chosen is None else chosen(rebuild)

    def make_index(self, rebuild: Rebuild) -> Rebuild:
        """The backfill's own needs are checked first: what cannot be read cannot be copied."""
        try:
            self.copier_of(rebuild, self.choices.rate)
            if not self.indices.exists(rebuild.new_index):
                options = rebuild.options or {}
                self.indices.create(rebuild.new_index, rebuild.mapping or {}, options.get("settings", {}))
        except OutboxError as error:
            if error.exit_code != 75:  # a server that is down is no verdict on the request
                self.advance(rebuild, rebuild.step, RebuildStatus.FAILED, error=error.message)
            raise
        self.say(f"made {rebuild.new_index}")
        return self.advance(rebuild, RebuildStep.MIRRORING, mirrors=[rebuild.new_index])

    def _wait_for_mirrors(self, rebuild: Rebuild) -> Rebuild:
        self.crew.wait(rebuild)
        return self.advance(rebuild, RebuildStep.BACKFILLING)

    def _fill(self, rebuild: Rebuild) -> Rebuild:
        """In parts, each with a cursor; this process keeps the rebuild's lease and adds up."""
        _, types = self.copier_of(rebuild, self.choices.rate)
        work, rate = Work(WorkKind.REBUILD, rebuild.id), self.choices.rate
        documents = max(rebuild.total or 0, self.parallel.estimate(types))  # the old index may be lost or empty

        def follow(now: PartsProgress) -> None:
            refused = self.rebuilds.gather(rebuild.id, now.written)
            if refused is None:
                self.not_broken(self.again(rebuild))
                raise HeldByAnother
            if refused > self.choices.max_refused:
                raise TooManyRefused(f"{refused:,} refused")
            self.on_progress("copying", now.done, max(documents, now.done), now.remark)

        try:
            self.parallel.copy(work, types, documents, rate, rebuild.started_by, follow)
        except SecondIndexLost as lost:
            self.rebuilds.give_up(rebuild, lost.detail)
            raise
        return self.advance(rebuild, RebuildStep.VERIFYING)

    def _verify(self, rebuild: Rebuild) -> Rebuild:
        """Compares; what differs is written once more and compared again, before a person is asked."""
        found = self._compare(rebuild)
        if found.report.drift and not self._acceptable(found):
            found = self._compare(rebuild)
        if not self._acceptable(found):
            self.advance(rebuild, RebuildStep.VERIFYING, verification_id=found.id, error=found.sentence)
            raise NotAlike(found.sentence)
        self._check_losses(rebuild, found.id)
        self.say(found.sentence)
        return self.advance(rebuild, RebuildStep.READY, verification_id=found.id)

    def _check_losses(self, rebuild: Rebuild, verification_id: int) -> None:
        """The comparison knows what PostgreSQL has; this, what only the old index has."""

        def progress(done: int) -> None:
            self.crew.renew(rebuild)
            self.on_progress(f"comparing {rebuild.old_index}", done, max(rebuild.total or 0, done), "")

        lost = self.search_losses(rebuild, self.choices.rate, progress)
        if lost.count > self.choices.accept_loss:
            self.advance(rebuild, RebuildStep.VERIFYING, verification_id=verification_id, error=lost.sentence)
            raise WouldLose(lost.sentence)

    def _compare(self, rebuild: Rebuild) -> Verification:
        wrong: list[DriftFinding] = []
        copier, _ = self.copier_of(rebuild, self.choices.rate)

        def keep(finding: DriftFinding) -> None:
            if finding.kind in DRIFT and len(wrong) < MOST_MENDED:
                wrong.append(finding)

        def progress(seen: Progress) -> None:
            self.crew.renew(rebuild)
            remark = ", ".join(part for part in (f"{seen.drift:,} found", seen.remark) if part)
            self.on_progress(f"comparing {seen.phase}", seen.done, seen.estimate, remark)

        wish = VerifyOptions(
            rate=self.choices.rate,
            target=rebuild.target,
            index=rebuild.new_index,
            by=rebuild.started_by,
            rebuild=rebuild.id,
            keep=MOST_MENDED,
        )
        found = self.verify.run(wish, progress, keep)
        if wrong:
            written = copier.correct(wrong)
            self.rebuilds.refused(rebuild.id, written.refusals, len(written.refusals))
        return found

    def _acceptable(self, found: Verification) -> bool:
        """A document whose newest event failed is as wrong in the old index. One that waits in the queue will be
        written to both; what could not be judged because nobody settles Kafka's records is not known to be right."""
        wrong = found.report.drift + found.report.unjudged - found.report.failed
        return wrong <= self.choices.accept_drift

    def _remove(self, rebuild: Rebuild) -> Rebuild:
        """The old index after a swap, otherwise the new one."""
        self.crew.wait(rebuild)
        unused = rebuild.old_index if rebuild.status == RebuildStatus.SWAPPED else rebuild.new_index
        self.indices.remove(unused)
        self.say(f"removed {unused}")
        if rebuild.step == RebuildStep.CANCELLING:
            return self.advance(rebuild, RebuildStep.CANCELLED, RebuildStatus.CANCELLED)
        is_back = rebuild.status == RebuildStatus.ROLLED_BACK
        return self.advance(rebuild, RebuildStep.FINISHED, None if is_back else RebuildStatus.FINISHED)

    def begin_again(self, rebuild: Rebuild) -> Rebuild:
        """The new index has missed writes, deletes among them: only an empty one can be trusted."""
        if self.indices.alias(rebuild.target).index == rebuild.new_index:
            raise NotNow(f"{rebuild.target} stands for {rebuild.new_index} already; see --rollback")
        self.crew.wait(rebuild)
        self.indices.remove(rebuild.new_index)
        return self.advance(rebuild, RebuildStep.CREATED, RebuildStatus.RUNNING, mirrors=[], reset=True)

    # Moving

    def advance(
        self, rebuild: Rebuild, step: RebuildStep | str, status: RebuildStatus | None = None, **more: Any
    ) -> Rebuild:
        moved = self.rebuilds.advance(rebuild, step, status, **more)
        if moved is None:
            self.not_broken(self.again(rebuild))
            raise HeldByAnother("it was moved by someone else meanwhile")
        return moved

    def again(self, rebuild: Rebuild) -> Rebuild:
        newest = self.rebuilds.newest()
        return rebuild if newest is None or newest.id != rebuild.id else newest

    def not_broken(self, rebuild: Rebuild) -> None:
        if rebuild.status == RebuildStatus.BROKEN:
            raise Broken(rebuild.broken or "")


CHECK_SECONDS: Final = 0.25
SAY_EVERY_SECONDS: Final = 5.0
RENEW_SECONDS: Final = 3.0
RECLAIM_SECONDS: Final = 2.0


@dataclass(slots=True)
class WorkerBarrier:
    workers: PostgresRebuilds
    reclaim: Callable[[], object]  # takes back leases that ran out: without a daemon nobody else would
    say: Callable[[str], None] = lambda _: None
    clock: Clock = time.monotonic
    rest: Callable[[float], None] = time.sleep
    _next_renewal: float = 0.0
    _next_message: float = 0.0
    _next_reclaim: float = 0.0

    def wait(self, rebuild: Rebuild) -> None:
        """First the confirmations, then the batches that were claimed before the last of them."""
        self._next_message = self.clock() + 1.0
        while late := self.workers.unconfirmed(rebuild.revision):
            self._turn(rebuild, f"waiting for {', '.join(late[:5])} to confirm")
        moment = self.workers.now()
        while held := self.workers.older_leases(moment):
            self._turn(rebuild, f"waiting for {sum(n for _, n in held)} batches from before to end")
            self._take_back()

    def _turn(self, rebuild: Rebuild, message: str) -> None:
        self.renew(rebuild)
        if self.clock() >= self._next_message:
            self._next_message = self.clock() + SAY_EVERY_SECONDS
            self.say(message)
        self.rest(CHECK_SECONDS)

    def _take_back(self) -> None:
        if self.clock() >= self._next_reclaim:
            self._next_reclaim = self.clock() + RECLAIM_SECONDS
            self.reclaim()

    def renew(self, rebuild: Rebuild) -> None:
        """Keeps the lease, at most every three seconds. Raises where someone else has it by now."""
        if self.clock() < self._next_renewal:
            return
        self._next_renewal = self.clock() + RENEW_SECONDS
        if not self.workers.renew(rebuild.id):
            raise HeldByAnother("it was taken over")


def new_owner() -> str:
    return named_owner(os.getpid())


def named_owner(pid: int) -> str:
    """A process of this host as the owner of a lease."""
    return f"{socket.gethostname()}:{pid}:{os.urandom(3).hex()}"


def dead_owner(owner: str | None) -> str | None:
    """The owner, if it was a process of this host that is gone: a killed rebuild goes on at once."""
    host, _, rest = (owner or "").partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit() or pid_alive(int(pid)):
        return None
    return owner
