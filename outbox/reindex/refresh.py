"""`outbox refresh`: writes refreshes of many entities in steps. The daemons read the view and do the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from outbox.errors import UsageError
from outbox.policy import inputs as read
from outbox.policy.audit import Action, Actor, Entry
from outbox.policy.drift import Key
from outbox.policy.inputs import BadRequest
from outbox.reindex.backfill import NotKeptByView
from outbox.reindex.pacing import JobPace

if TYPE_CHECKING:
    from outbox.store.truth import PostgresTruth
    from outbox.store.view_shape import ViewKeys

A_STEP: Final = 500
DEFAULT_RATE: Final = 1_000.0
LONGEST_CONDITION: Final = 2_000


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """Which entities: by id, by a condition, or all. `after`: continue after this one."""

    types: Sequence[str]
    ids: Sequence[str] = ()
    condition: str | None = None
    after: Key | None = None


@dataclass(slots=True)
class Refreshed:
    """`last`: the type and id up to which everything is written."""

    batch: UUID
    written: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
    last: Key | None = None


@dataclass(frozen=True, slots=True)
class RefreshDesk:
    view: ViewKeys
    truth: Callable[[], PostgresTruth]
    refresh: Callable[[str, Sequence[str], Entry], int]  # (type, ids, audit row) -> how many were written

    def types(self, wanted: Sequence[str]) -> list[str]:
        """Those that are meant. None: all that the view keeps."""
        truth = self.truth()
        if refused := sorted(kind for kind in set(wanted) if not truth.kept_by_view(kind)):
            raise NotKeptByView(", ".join(refused))
        return sorted(set(wanted) or filter(truth.kept_by_view, truth.types()))

    def count(self, wish: RefreshOptions) -> dict[str, int]:
        """How many entities of each type there are, `after` left out of account."""
        self._check(wish)
        if wish.ids:
            return {wish.types[0]: len(wish.ids)}
        given = () if wish.condition is None else (wish.condition,)
        return {each: self.view.count(each, *given) for each in wish.types}

    def begin(self) -> Refreshed:
        return Refreshed(uuid4())

    def write(
        self,
        wish: RefreshOptions,
        actor: Actor,
        reason: str,
        done: Refreshed,
        *,
        rate: float = DEFAULT_RATE,
        on_step: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Each step is one transaction with its audit row. Whoever interrupts it finds in `done` how far it came."""
        self._check(wish)
        reason, pace = read.reason(reason), JobPace(rate, self.truth().backlog_waits)
        for entity_type, ids in self._steps(wish):
            entry = _entry(done.batch, actor, reason, wish, entity_type, ids)
            written = self.refresh(entity_type, ids, entry)
            done.written += written
            done.by_type[entity_type] = done.by_type.get(entity_type, 0) + written
            done.last = Key(entity_type, ids[-1])
            on_step(done.written)
            pace.took(len(ids))

    def _steps(self, wish: RefreshOptions) -> Iterator[tuple[str, Sequence[str]]]:
        if wish.ids:
            for start in range(0, len(wish.ids), A_STEP):
                yield wish.types[0], wish.ids[start : start + A_STEP]
            return
        given = () if wish.condition is None else (wish.condition,)
        begin = wish.after or Key("", "")
        for entity_type in (each for each in wish.types if each >= begin.entity_type):
            after = begin.entity_id if entity_type == begin.entity_type else None
            while ids := self.view.keys(entity_type, after, A_STEP, *given):
                yield entity_type, ids
                after = ids[-1]

    def _check(self, wish: RefreshOptions) -> None:
        if strange := self.view.no_ids([*wish.ids, *([wish.after.entity_id] if wish.after else [])]):
            raise BadRequest([("id", f"{strange[0][:80]!r} is no id of the view")])
        if wish.condition is None:
            return
        if not wish.condition.strip() or "\x00" in wish.condition or len(wish.condition) > LONGEST_CONDITION:
            raise UsageError(f"--where must be one SQL condition of at most {LONGEST_CONDITION:,} characters")
        self.view.check(wish.condition)


def _entry(batch: UUID, actor: Actor, reason: str, wish: RefreshOptions, entity_type: str, ids: Sequence[str]) -> Entry:
    detail: dict[str, Any] = {"events": len(ids), "first": ids[0], "last": ids[-1]}
    if wish.condition is not None:
        detail["where"] = wish.condition
    return Entry(Action.REFRESH_SUMMARY, actor, reason, batch_id=batch, entity_type=entity_type, detail=detail)
