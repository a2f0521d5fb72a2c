"""A document that is too large fails by its size, unread; what a process needs for one that is not."""

import subprocess
import sys
from typing import Any

import pytest

from outbox.policy.document import BATCH_BYTES
from outbox.store.documents import ViewDocuments
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.processes import clean_environment
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import MemorySink
from tests.integration.test_hot_path_guards import counted

MB = 1_000_000
LIMIT = 100_000
VIEW = (
    "create table texts (id text primary key, body text);"
    "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
    " json_build_object('body', body) as document from texts"
)


def sized(size: int) -> str:
    return '{"body": "' + "x" * (size - 12) + '"}'


def a_worker(queue: EventTable, sink: MemorySink) -> InProcess:
    documents = ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES, most_bytes=LIMIT)
    worker = InProcess(Parts(queue.store(), sink, documents=documents))
    worker.projector.most_document_bytes = LIMIT
    return worker


def test_a_payload_above_the_limit_fails_by_its_size_and_is_never_read(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = queue.produce("large", payload=sized(LIMIT + 1))
    good = [queue.produce("small"), queue.produce("just", payload=sized(LIMIT))]
    sink = MemorySink()
    worker = a_worker(queue, sink)
    read: list[Any] = []
    payloads = worker.parts.store.payloads
    monkeypatch.setattr(worker.parts.store, "payloads", lambda ids: read.extend(ids) or payloads(ids))
    worker.run()
    row = queue.row(large)
    assert (row.status, row.error_reason, row.attempts) == ("failed", "too_large", 1)
    assert "OUTBOX_MAX_DOCUMENT_BYTES allows 100,000" in row.error
    assert [queue.row(id).status for id in good] == ["done", "done"]
    assert read == [good[1]], "the large one that fits, and no other"


def test_a_document_of_the_view_above_the_limit_fails_by_its_size_and_is_never_read(
    queue: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.connection.execute(VIEW)
    for id, size in (("large", LIMIT + 100), ("just", LIMIT - 100), ("small", 10)):
        queue.connection.execute("insert into texts values (%s, repeat('x', %s))", [id, size])
    events = {id: queue.produce(id, "refresh", payload=None) for id in ("large", "just", "small")}
    sink = MemorySink()
    worker = a_worker(queue, sink)
    with counted(monkeypatch) as statements:
        worker.run()
    assert {id: queue.row(event).status for id, event in events.items()} == {
        "large": "failed",
        "just": "done",
        "small": "done",
    }
    assert queue.row(events["large"]).error_reason == "too_large"
    assert sum("json_array_elements_text" in each for each in statements.seen) == 2, "all, and the one that is large"


@pytest.fixture
def once(queue: EventTable, elastic_url: str, index: str) -> Any:
    """`once()`: one claim of a real process; its largest resident size in bytes."""
    env = {
        "DATABASE_URL": queue.url,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": index,
        "OUTBOX_METRICS_PORT": "0",
        "OUTBOX_CONCURRENCY": "1",
    }

    # A child begins with the peak of the process that forks it: a small one forks it, and tells the child's own.
    measured = "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:], stderr=-3).returncode;"
    measured += " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"

    def run() -> int:
        command = [sys.executable, "-c", measured, sys.executable, "-m", "outbox", "run", "--once", "--no-wait"]
        done = subprocess.run(command, env=clean_environment(env), capture_output=True, text=True, check=True)
        return int(done.stdout) * 1024

    return run


def verdict(queue: EventTable, id: Any) -> tuple[Any, ...] | None:
    asked = "select status, error_reason from search_outbox_events where id = %s"
    return queue.connection.execute(asked, [id]).fetchone()


def test_a_document_takes_at_most_three_times_its_size_and_one_above_the_limit_nothing(
    queue: EventTable, once: Any
) -> None:
    """The formula of the runbook; 2.85 was measured."""
    queue.produce("small")
    usual = once()
    allowed, huge = 30 * MB, 150 * MB
    added = "insert into search_outbox_events (entity_type, entity_id, op, payload) select 'block', %s, 'upsert',"
    added += " json_build_object('body', repeat('x', %s)) returning id"
    (id,) = queue.connection.execute(added.encode(), ["large", allowed]).fetchone() or (None,)
    grown = once() - usual
    assert verdict(queue, id) == ("done", None)
    assert allowed < grown <= 3 * allowed + 4 * BATCH_BYTES, grown / allowed
    (id,) = queue.connection.execute(added.encode(), ["huge", huge]).fetchone() or (None,)
    grown = once() - usual
    assert verdict(queue, id) == ("failed", "too_large")
    assert grown < allowed, "its payload was not read"
