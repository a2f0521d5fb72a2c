"""What a replay would do, said beforehand: counts, a sample, pinned ids. Reads only; a plan applies exactly its ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from outbox.errors import UsageError
from outbox.ops.replay.desk import limit_of
from outbox.policy import inputs
from outbox.policy.event import REFRESH
from outbox.policy.inputs import NONE, EventFilter, given
from outbox.policy.replay import MOST_ROWS

if TYPE_CHECKING:
    from outbox.store.failures import PostgresFailures

FORMAT: Final = "outbox-replay-plan/1"
SAMPLE: Final = 20
MOST_VERSIONS: Final = 10_000  # ten requests of a thousand: a second

Row = Mapping[str, Any]
Versions = Callable[[Sequence[Row]], Sequence[int | None] | None]
"""The version of each row's document in Elasticsearch, in order; None when it does not answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`matched` events fit the filter (10,001 = more than 10,000), `total` of them would move. `superseded`: of the
    first `compared`, how many Elasticsearch holds in a newer version; None = it does not answer."""

    id: UUID
    created_at: datetime
    filter: Mapping[str, Any]
    matched: int
    total: int
    by_entity_type: Mapping[str, int]
    by_error_reason: Mapping[str, int]
    by_fingerprint: Mapping[str, int]
    skipped: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None
    sample: Sequence[Row]
    superseded: int | None
    compared: int
    ids: Sequence[UUID] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Planner:
    failures: PostgresFailures
    versions: Versions | None = None

    def plan(self, asked: EventFilter, limit: int | None = None, *, pin: bool = False) -> Plan:
        """The dry run; `pin` also lists the ids, for a plan file."""
        most = limit_of(asked, limit)
        if asked.ids:
            return self._chosen(asked, most)
        counts, rows = self.failures.plan(asked, most, MOST_VERSIONS)
        whole = next((row for row in counts if row["level"] == 7), None)
        ids = self.failures.plan_ids(asked, most) if pin else ()
        return self._plan(
            asked,
            rows,
            matched=self.failures.count(asked, inputs.MOST_COUNTED + 1),
            total=len(ids) if pin else whole["n"] if whole else 0,
            by_entity_type=_by(counts, 3, "entity_type"),
            by_error_reason=_by(counts, 5, "error_reason"),
            by_fingerprint=_by(counts, 6, "error_fingerprint"),
            oldest=whole["oldest"] if whole else None,
            newest=whole["newest"] if whole else None,
            ids=ids,
        )

    def _chosen(self, asked: EventFilter, most: int) -> Plan:
        """Given ids: those that are neither failed nor discarded would be skipped, and so would unknown ones."""
        found = self.failures.chosen(asked, asked.ids[:most])
        rows = [row for row in found if row["status"] in ("failed", "discarded")]
        skipped = Counter(row["status"] for row in found if row not in rows)
        skipped["not_found"] = min(len(asked.ids), most) - len(found)
        times = [row["failed_at"] for row in rows if row["failed_at"] is not None]
        return self._plan(
            asked,
            rows,
            matched=len(found),
            total=len(rows),
            by_entity_type=dict(Counter(row["entity_type"] for row in rows)),
            by_error_reason=dict(Counter(row["error_reason"] or NONE for row in rows)),
            by_fingerprint=dict(Counter(row["error_fingerprint"] or NONE for row in rows)),
            skipped={state: n for state, n in skipped.items() if n},
            oldest=min(times, default=None),
            newest=max(times, default=None),
            ids=[row["id"] for row in rows],
        )

    def _plan(self, asked: EventFilter, rows: Sequence[Row], **counts: Any) -> Plan:
        held = self.versions(rows) if self.versions is not None and rows else []
        newer = None if held is None else _newer(rows, held)
        return Plan(
            id=uuid4(),
            created_at=datetime.now(UTC),
            filter=given(asked),
            sample=[dict(row) for row in rows[:SAMPLE]],
            superseded=newer if self.versions is not None else None,
            compared=0 if held is None else len(held),
            **{"skipped": {}, **counts},
        )


def _newer(rows: Sequence[Row], held: Sequence[int | None]) -> int:
    """A refresh draws a version above whatever is there: none of them is superseded."""
    pairs = zip((row if row["op"] != REFRESH else None for row in rows), held, strict=False)
    return sum(1 for row, version in pairs if row and version is not None and version > row["event_version"])


def _by(counts: Sequence[Row], level: int, name: str) -> dict[str, int]:
    """One grouping of the statement: `level` has a bit for every column that it does not group by."""
    return {row[name] or NONE: row["n"] for row in counts if row["level"] == level}


def written(plan: Plan) -> str:
    """A plan as a file."""
    about = {name: value for name, value in asdict(plan).items() if name != "sample"}
    return json.dumps({"format": FORMAT, **about}, indent=2, default=str) + "\n"


def read(text: str) -> tuple[str, EventFilter, tuple[UUID, ...]]:
    """(the plan's id, its filter, its ids). The id becomes the replay's client id: a plan is applied once."""
    try:
        about = json.loads(text)
        if about["format"] != FORMAT:
            raise UsageError(f"the plan's format is not {FORMAT}")
        ids = tuple(dict.fromkeys(UUID(id) for id in about["ids"]))
        found = str(UUID(about["id"])), inputs.read_event_filter(about["filter"], datetime.now(UTC)), ids
    except (ValueError, KeyError, TypeError) as wrong:
        raise UsageError(f"that is no plan of `--plan-out`: {type(wrong).__name__} {wrong}") from None
    if not 1 <= len(ids) <= MOST_ROWS:
        raise UsageError("the plan holds no ids: nothing matched when it was made")
    return found
