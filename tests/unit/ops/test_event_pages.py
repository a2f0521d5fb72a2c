"""Places in a list: each state is a shelf, and a place names where the next page begins."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from outbox.errors import UsageError
from outbox.ops.events import next_place, places, read_place
from outbox.ops.stored_event import StoredEvent

AT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
EVENT = StoredEvent(
    **{
        **dict.fromkeys(StoredEvent.__dataclass_fields__),
        "id": uuid4(),
        "seq": 7,
        "entity_type": "article",
        "entity_id": "1",
        "op": "upsert",
        "event_version": 1,
        "status": "failed",
        "failed_at": AT,
        "created_at": AT,
        "updated_at": AT,
    }  # type: ignore[arg-type]
)


@pytest.mark.parametrize("shelf", ["pending", "failed", "done", "discarded"])
def test_a_place_is_read_back_as_it_was_written(shelf: str) -> None:
    wanted = places([shelf], everything=False)
    event = replace(EVENT, processed_at=AT)
    behind = next_place(wanted[0], wanted, event, more=True)
    assert behind is not None
    assert read_place(str(behind), wanted) == behind


def test_behind_the_last_row_of_a_shelf_comes_the_next_shelf() -> None:
    wanted = places((), everything=False)
    assert next_place(wanted[0], wanted, EVENT, more=False) == wanted[1]
    assert next_place(wanted[1], wanted, EVENT, more=False) is None


@pytest.mark.parametrize(
    "forged", ["", "open", "open:x", "done:2026-01-01:1", "failed:now:1", "lost:1", "failed:;drop"]
)
def test_a_forged_place_is_refused(forged: str) -> None:
    with pytest.raises(UsageError):
        read_place(forged, places((), everything=False))
