"""Plans that the console keeps until they are run: exactly their ids, in bounded memory."""

import gc
import weakref
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from outbox.ops.replay.plan import Plan
from outbox.policy.inputs import EventFilter
from outbox.web.pages.replays import Plans


def a_plan(ids: int) -> Plan:
    counts: dict[str, Any] = {
        "matched": ids,
        "total": ids,
        "by_entity_type": {},
        "by_error_reason": {},
        "by_fingerprint": {},
    }
    times: dict[str, Any] = {"created_at": datetime.now(UTC), "oldest": None, "newest": None}
    rest: dict[str, Any] = {"filter": {}, "skipped": {}, "sample": (), "superseded": None, "compared": 0}
    return Plan(id=uuid4(), ids=[uuid4() for _ in range(ids)], **counts, **times, **rest)


def test_a_kept_plan_holds_its_ids_as_bytes_and_not_as_objects() -> None:
    """Twenty plans of 100,000 objects took 220 MB; as bytes 32 MB."""
    plans, plan = Plans(), a_plan(1_000)
    seen = [weakref.ref(id) for id in plan.ids]
    name = str(plan.id)
    plans.keep(plan, EventFilter())
    del plan
    gc.collect()
    assert [ref() for ref in seen] == [None] * 1_000
    assert len(plans.take(name)[0].ids) == 1_000
