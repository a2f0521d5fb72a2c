"""`from outbox import Outbox`: events in the caller's own transaction, failures, replays, statistics."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox import Outbox
from outbox.errors import UsageError
from tests.fixtures.queue import EventTable


@pytest.fixture
def producing(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A producer's connection, not in autocommit."""
    with psycopg.connect(database) as connection:
        yield connection


@pytest.fixture
def library(database: str) -> Iterator[Outbox]:
    with Outbox(database) as opened:
        yield opened


def fail(queue: EventTable, n: int, reason: str = "too_large") -> list[UUID]:
    ids = [queue.produce() for _ in range(n)]
    queue.connection.execute(
        "update search_outbox_events set status = 'failed', error_reason = %s, error = 'text' where id = any (%s)",
        [reason, ids],
    )
    return ids


def test_json_text_is_kept_digit_by_digit_and_objects_are_written_plainly(
    library: Outbox, queue: EventTable, producing: psycopg.Connection[Any]
) -> None:
    raw = '{"big": 12345678901234567890, "p": 1.10}'
    kept = library.enqueue(producing, "a", 1, "upsert", raw)
    at, id = datetime(2026, 2, 3, tzinfo=UTC), uuid4()
    made = library.enqueue(producing, "a", 2, "upsert", {"at": at, "id": id, "ü": "日本"})
    producing.commit()
    assert queue.value("select payload::text from search_outbox_events where id = %s", kept) == raw
    written = queue.value("select payload::text from search_outbox_events where id = %s", made)
    assert json.loads(written) == {"at": at.isoformat(), "id": str(id), "ü": "日本"}


def test_what_has_no_plain_json_form_is_refused_before_anything_is_sent(
    library: Outbox, queue: EventTable, producing: psycopg.Connection[Any]
) -> None:
    with pytest.raises(TypeError, match="Decimal"):
        library.enqueue(producing, "a", 1, "upsert", {"price": Decimal("1.10")})
    with pytest.raises(ValueError, match=r"[Oo]ut of range|nan"):
        library.enqueue(producing, "a", 1, "upsert", {"price": float("nan")})
    assert queue.counts() == {}


def test_failed_events_are_listed_newest_first_by_limit_offset_and_filter(library: Outbox, queue: EventTable) -> None:
    ids = fail(queue, 5)
    others = fail(queue, 2, "es_5xx")
    assert {event.id for event in library.failed()} == {*ids, *others}
    pages = [library.failed(limit=3, offset=offset) for offset in (0, 3, 6)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({event.id for page in pages for event in page}) == 7
    (first, _) = library.failed(error_reason="es_5xx")
    assert first.is_failed
    assert first.error_info is not None
    assert (first.error_info.reason, first.error_info.failure_type) == ("es_5xx", "network")


def test_one_and_many_are_replayed_once_each(library: Outbox, queue: EventTable) -> None:
    first, *rest = fail(queue, 4)
    assert library.replay_one(first, "alice", "fixed") is True
    assert library.replay_one(first, "alice", "fixed") is False
    assert library.replay_one(str(uuid4()), "alice", "fixed") is False
    result = library.replay_many([*map(str, rest), first], "alice", "fixed")
    assert set(result.replayed) == set(rest)
    assert set(result.skipped) == {first}
    row = queue.row(first)
    assert (row.status, row.replay_count, row.last_replayed_by) == ("pending", 1, "alice")
    wrong: Any
    for wrong in ("not-a-uuid", 5, None):
        with pytest.raises(UsageError, match="is not an event's id"):
            library.replay_one(wrong, "alice", "fixed")
