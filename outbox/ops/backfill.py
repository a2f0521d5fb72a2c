"""Writes PostgreSQL's documents into a rebuild's new index, page by page in key order. Moves no step of the rebuild.

Late and double writes are harmless: each carries the version of the state that it was read with, and Elasticsearch
keeps the higher one. Deletes are not written here: they come by the mirrored events, and stay as tombstones.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from outbox.errors import ElasticsearchDown, OutboxError
from outbox.ops.pace import Pace
from outbox.policy.drift import Finding, Held, Key, Kind, Truth
from outbox.policy.naming import Naming
from outbox.policy.outcome import Failure, FailureClass
from outbox.ports import Action, Refusal, Sink

PAGE: Final = 500
DEADLINE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 600.0  # with an Elasticsearch that is away; then `--resume` goes on later
LONGEST_WAIT_SECONDS: Final = 10.0


class SecondIndexLost(OutboxError):
    """The new index cannot be written to: it is gone, blocked or forbidden. Production goes on in the old one; mend
    the cause and begin again with `outbox rebuild --resume`, or give it up with `--cancel`."""


class Source(Protocol):
    @property
    def by_entity(self) -> bool: ...
    def keys(self, entity_type: str, after: str | None, limit: int) -> Sequence[str]: ...
    def load(self, keys: Sequence[Key], *, whole: bool = False, done: bool = False) -> Sequence[Truth]: ...
    def newest_versions(self, keys: Sequence[Key]) -> Mapping[Key, tuple[int, str | None]]: ...


class Documents(Protocol):
    def held(self, index: str, ids: Sequence[str], *, routed: bool = False) -> Mapping[str, Sequence[Held]]: ...


@dataclass(slots=True)
class Written:
    """What became of one page."""

    count: int = 0
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(slots=True)
class Backfill:
    source: Source
    documents: Documents
    sink: Sink
    naming: Naming
    old_index: str
    new_index: str
    routed: bool
    pace: Pace
    alive: Callable[[], None] = lambda: None  # called while waiting, so that a lease is kept

    def pages(self, types: Sequence[str], cursor: Mapping[str, Any] | None) -> Iterator[tuple[dict[str, Any], Written]]:
        """Every page from the cursor on, each with the cursor that comes after it."""
        begin_type, after = (cursor["type"], cursor["after"]) if cursor else ("", None)
        for kind in (kind for kind in types if kind >= begin_type):
            last: str | None = after if kind == begin_type else None
            while ids := self.source.keys(kind, last, PAGE):
                last = ids[-1]
                yield {"type": kind, "after": last}, self.write([Key(kind, id) for id in ids])
                self.pace.took(len(ids))

    def write(self, keys: Sequence[Key]) -> Written:
        """The documents of these entities as they are now; whoever has none is left out."""
        written = Written()
        routings = self.source.newest_versions(keys) if self.routed else {}
        small: list[Action] = []
        for truth in self._truths(keys):
            if truth.failure is not None:
                id = self.naming.id_of(truth.key)
                written.refusals.append(Refusal(self.new_index, id, f"unreadable: {truth.failure}"))
            elif truth.size_bytes:
                self._send(self._large(truth, routings), written)
            elif truth.text is not None:
                small.append(self._action(truth, routings))
        self._send(small, written)
        return written

    def mend(self, findings: Sequence[Finding]) -> Written:
        """What a comparison of the new index found: written again, and what is too much removed."""
        keys = [f.key for f in findings if f.key is not None and f.kind is not Kind.ORPHANED]
        orphans = [f for f in findings if f.kind is Kind.ORPHANED and f.held is not None]
        written = self.write(keys) if keys else Written()
        self._send([Action(self.new_index, f.id, f.held or 0, f.routing, None) for f in orphans], written)
        return written

    # Versions

    def _truths(self, keys: Sequence[Key]) -> list[Truth]:
        """Where the view names no version, one is read first and the document after it: what is written under a version
        is then never older than that version."""
        truths = list(self.source.load(keys, done=True))
        bare = [t.key for t in truths if t.version is None and (t.text is not None or t.size_bytes)]
        if not bare:
            return truths
        versions = self._versions_of(bare)
        again = {t.key: t._replace(version=versions.get(t.key, 0)) for t in self.source.load(bare, done=True)}
        return [again.get(truth.key, truth) for truth in truths]

    def _versions_of(self, keys: Sequence[Key]) -> Mapping[Key, int]:
        if self.source.by_entity:
            return {key: version for key, (version, _) in self.source.newest_versions(keys).items()}
        ids = {self.naming.id_of(key): key for key in keys}
        found = self.documents.held(self.old_index, list(ids), routed=self.routed)
        return {ids[id]: max(held.version for held in each) for id, each in found.items()}

    def _large(self, truth: Truth, routings: Mapping[Key, tuple[int, str | None]]) -> list[Action]:
        whole = self.source.load([truth.key], whole=True, done=True)[0]
        if whole.text is None:
            return []
        return [self._action(whole._replace(version=_first(whole.version, truth.version)), routings)]

    def _action(self, truth: Truth, routings: Mapping[Key, tuple[int, str | None]]) -> Action:
        assert truth.text is not None
        routing = truth.routing or routings.get(truth.key, (0, None))[1]
        id = self.naming.id_of(truth.key)
        return Action(self.new_index, id, truth.version or 0, routing, truth.text.encode())

    # Sending

    def _send(self, actions: Sequence[Action], written: Written) -> None:
        """Until every one is accepted or refused. A server that is away is waited for."""
        waited, delay = 0.0, 0.5
        while actions:
            actions, failure = self._send_once(actions, written)
            if failure is None:
                return
            if waited >= PATIENCE_SECONDS:
                raise ElasticsearchDown(failure.error)
            self.alive()
            time.sleep(delay)
            waited, delay = waited + delay, min(LONGEST_WAIT_SECONDS, delay * 2)

    def _send_once(self, actions: Sequence[Action], written: Written) -> tuple[list[Action], Failure | None]:
        left: list[Action] = []
        last: Failure | None = None
        for action, outcome in zip(actions, self.sink.write(actions, DEADLINE_SECONDS).outcomes, strict=True):
            if not isinstance(outcome, Failure):
                written.count += 1
            elif outcome.failure_class is FailureClass.DETERMINISTIC:
                written.refusals.append(Refusal(action.index, action.id, outcome.error))
            elif outcome.failure_class is FailureClass.SYSTEMIC:
                raise SecondIndexLost(f"{action.index}: {outcome.error}")
            else:
                left.append(action)
                last = outcome
        return left, last


def _first(*versions: int | None) -> int | None:
    return next((version for version in versions if version is not None), None)
