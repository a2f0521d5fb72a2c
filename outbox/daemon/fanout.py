"""Expands the fan-outs of a batch: runs their queries, writes the refreshes page by page, says what becomes of each.
Sends nothing to the index.

Why no document is missed: what was committed before the claim is seen by the query, which runs after it. Who commits a
link later writes an event of the document itself, which is claimed, and so read, after this change (docs/documents.md).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from outbox.daemon.batch import Batch
from outbox.daemon.lease import while_leased
from outbox.facts import Announce, FannedOut
from outbox.policy.event import Event
from outbox.policy.fanout import (
    EXPAND_SECONDS,
    FOUND_AT_ONCE,
    MERGED,
    MOST_OPEN,
    PACED,
    PAGE,
    Fanout,
    by_attachment,
    by_key,
)
from outbox.policy.outcome import Failure
from outbox.policy.settle import DONE, NOT_SENT, Judge, Settlement

LEAST_SECONDS: Final = 1.5  # of lease, for a page and the settle
KEPT: Final = 4  # fan-outs whose ids are kept between their pages: one more than lanes usually are


class FanoutStore(Protocol):
    def read(self, events: Sequence[Event]) -> Sequence[Fanout]: ...
    def find(self, fanout: Fanout, keys: Sequence[str], most: int) -> Sequence[str] | Failure: ...
    def open_refreshes(self, most: int) -> int: ...
    def write(self, fanout: Fanout, token: UUID, ids: Sequence[str]) -> int | Failure: ...


class Left(NamedTuple):
    """Ids behind the cursor that this worker has left in the row, and whether there are no more. Worth nothing once the
    row has another: a colleague has asked anew since, perhaps for a later change too."""

    cursor: str | None
    ids: Sequence[str]
    ends: bool


@dataclass(slots=True)
class Fanouts:
    store: FanoutStore
    judge: Judge
    announce: Announce
    # By event and replay: what is left of the ids that a query found. Lanes share it: each operation is a single one.
    _left: OrderedDict[tuple[UUID, int], Left] = field(default_factory=OrderedDict)

    def expand(self, events: Sequence[Event], batch: Batch) -> None:
        """A verdict for each, unless its lease or the time is over: then it goes back as it was."""
        fresh: list[Fanout] = []
        for fanout in while_leased(lambda: self.store.read(events), batch.holding):
            if failure := fanout.refusal():
                self._fail([fanout], failure, batch)
            elif fanout.cursor is not None:
                self._go_on([fanout], batch)
            else:
                fresh.append(fanout)
        for together in by_attachment(fresh):
            groups = by_key(together)
            if len(groups) == 1 or not self._at_once(together, batch):
                for group in groups:
                    self._go_on(group, batch)

    def _at_once(self, fanouts: Sequence[Fanout], batch: Batch) -> bool:
        """A million changes of one row each cost one query per batch. False: each key is to be expanded alone, because
        all together need more than a page, or one of them fails."""
        if self._over(batch):
            return False
        keys = list(dict.fromkeys(fanout.keys or "" for fanout in fanouts))
        ids = while_leased(lambda: self.store.find(fanouts[0], keys, PAGE + 1), batch.holding)
        if isinstance(ids, Failure) or len(ids) > PAGE:
            return False
        if not ids:
            self._give(fanouts, DONE, batch)
        elif self._room() < len(ids):
            self._give(fanouts, PACED, batch)
        else:
            self._give(fanouts, DONE if self._write(fanouts[0], ids, batch, ends=True) else NOT_SENT, batch)
        return True

    def _go_on(self, fanouts: Sequence[Fanout], batch: Batch) -> None:
        """Of one key. The first goes on from its cursor; the others are as new as it is, and it does their work. Ids
        that it found in an earlier claim would lack links from before their changes."""
        first, others = fanouts[0], fanouts[1:]
        if others:
            self._forget([first])
        while not self._over(batch):
            left = self._find(first, batch)
            if isinstance(left, Failure):
                return self._fail(fanouts if first.cursor is None else [first], left, batch)
            if not left.ids:
                return self._give(fanouts, DONE, batch)
            page = left.ids[: min(PAGE, self._room())]
            if len(page) < min(len(left.ids), PAGE):
                return self._rest(first, others, PACED, batch)
            rest = Left(page[-1], left.ids[len(page) :], left.ends)
            if not self._write(first, page, batch, ends=rest.ends and not rest.ids):
                return self._give(fanouts, NOT_SENT, batch)
            first = first._replace(cursor=rest.cursor)
            self._keep(first, rest)
        return self._rest(first, others, NOT_SENT, batch)

    def _rest(self, first: Fanout, others: Sequence[Fanout], verdict: Settlement, batch: Batch) -> None:
        """With a page of this batch the others are in the first one's hands, whoever goes on with it."""
        self._give([first], verdict, batch)
        self._give(others, verdict if first.cursor is None else MERGED, batch)

    def _find(self, fanout: Fanout, batch: Batch) -> Left | Failure:
        left = self._left.get(_key(fanout))
        if left is not None and left.cursor == fanout.cursor and (left.ids or left.ends):
            return left
        ids = while_leased(lambda: self.store.find(fanout, [fanout.keys or ""], FOUND_AT_ONCE), batch.holding)
        if isinstance(ids, Failure):
            return ids
        left = Left(fanout.cursor, ids, len(ids) < FOUND_AT_ONCE)
        self._keep(fanout, left)
        return left

    def _keep(self, fanout: Fanout, left: Left) -> None:
        self._left[_key(fanout)] = left
        while len(self._left) > KEPT:
            self._left.popitem(last=False)

    def _write(self, fanout: Fanout, ids: Sequence[str], batch: Batch, *, ends: bool) -> bool:
        token = batch.claimed.token
        written = while_leased(lambda: self.store.write(fanout, token, ids), batch.holding)
        if isinstance(written, Failure):
            self._fail([fanout], written, batch)
            return False
        if written:
            self.announce(FannedOut(fanout.event.id, fanout.entity_type, fanout.named, written, ends))
        return written > 0

    def _room(self) -> int:
        return max(0, MOST_OPEN - self.store.open_refreshes(MOST_OPEN))

    def _forget(self, fanouts: Sequence[Fanout]) -> None:
        for fanout in fanouts:
            self._left.pop(_key(fanout), None)

    def _over(self, batch: Batch) -> bool:
        return batch.holding.age() > EXPAND_SECONDS or batch.holding.hold_up(LEAST_SECONDS) is not None

    def _fail(self, fanouts: Sequence[Fanout], failure: Failure, batch: Batch) -> None:
        batch.verdicts.give_all((fanout.event, self.judge.failure(fanout.event, failure)) for fanout in fanouts)
        self._forget(fanouts)

    def _give(self, fanouts: Sequence[Fanout], verdict: Settlement, batch: Batch) -> None:
        """What failed while it was written keeps that verdict."""
        batch.verdicts.give_all((each.event, verdict) for each in fanouts if batch.verdicts.of(each.event) is None)
        if verdict is DONE:
            self._forget(fanouts)


def _key(fanout: Fanout) -> tuple[UUID, int]:
    return fanout.event.id, fanout.event.replay_count
