"""Giving events up: one, or all that match a filter. Rows stay as `discarded`; a replay by id brings them back.

The log line is written by a daemon, which hears of it from the table: whoever discards writes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from outbox.errors import Conflict, NotFound
from outbox.policy import inputs
from outbox.policy.audit import Actor, people
from outbox.policy.inputs import BadRequest, EventFilter, described

MOST_FLUSHED: Final = 100_000  # one transaction; more are flushed in portions of `until`

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Discarded:
    id: UUID
    entity_type: str
    entity_id: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """`id` is the batch id of its audit rows."""

    id: UUID
    count: int


@dataclass(frozen=True, slots=True)
class DiscardDesk:
    discard_row: Callable[[UUID, Actor, str], Row | str | None]
    flush_rows: Callable[[UUID, EventFilter, int, Actor, str, str], int]  # batch, filter, expected, who, why, who else

    def discard(self, id: UUID, actor: Actor, reason: str) -> Discarded:
        """Only pending and failed events; any other state is a conflict that names it."""
        actor, reason = inputs.actor(actor.name, actor.source, actor.role), inputs.reason(reason)
        found = self.discard_row(id, actor, reason)
        if found is None:
            raise NotFound(f"event {id}")
        if isinstance(found, str):
            raise Conflict(f"event {id} is {found}; only pending and failed events can be discarded")
        return Discarded(id, found["entity_type"], found["entity_id"])

    def flush(self, asked: EventFilter, expect: int, actor: Actor, reason: str, approved_by: str) -> Flushed:
        """All failed events that match, if they are exactly as many as expected and a second person agrees."""
        actor, reason = inputs.actor(actor.name, actor.source, actor.role), inputs.reason(reason)
        approved_by = inputs.line("approved_by", approved_by, inputs.LONGEST_NAME)
        if people(approved_by) & people(actor.name):
            raise BadRequest([("approved_by", "must be another person: neither who acts nor for whom they act")])
        expect = inputs.whole("expect", expect, 1, MOST_FLUSHED)
        batch_id = uuid4()
        found = self.flush_rows(batch_id, asked, expect, actor, reason, approved_by)
        if found != expect:
            many = f"more than {expect:,}" if found > expect else f"{found:,}"
            raise Conflict(f"{many} events match ({described(asked)}), {expect:,} were expected: nothing was changed")
        return Flushed(batch_id, found)
