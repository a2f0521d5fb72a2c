"""The drill: make a failure, see it in console and command line, replay it, and check state, document and audit."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox
from tests.fixtures.console import console_process
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.busy(whole=True)
PERSON, CONCLUSION = "alice", "drill: producer fixed"


@pytest.fixture
def console(start_process: StartProcess, servers: dict[str, str | None]) -> Iterator[httpx.Client]:
    """The console's API, asked as a person's script would."""
    with console_process(start_process, servers) as (_, address):
        base = f"{address}/api/v1/"
        with httpx.Client(base_url=base, timeout=PATIENCE_SECONDS, trust_env=False) as client:
            yield client


def ask(console: httpx.Client, path: str) -> Any:
    return console.get(path).raise_for_status().json()


@pytest.fixture
def projector(start_daemon: StartProcess) -> RunningProcess:
    daemon = start_daemon()
    daemon.wait_for_fact("worker.started")
    return daemon


def fail(queue: EventTable, entity_id: str) -> str:
    """Step 1: one failure, made by hand."""
    id = queue.produce(entity_id, op="not-a-real-op", entity_type="block")
    eventually(lambda: queue.row(id).status == "failed")
    return str(id)


def fix(queue: EventTable, entity_id: str) -> None:
    fixed = """update search_outbox_events set op = 'upsert', payload = '{"title": "fixed"}' where entity_id = %s"""
    queue.connection.execute(fixed, [entity_id])


@pytest.mark.usefixtures("projector")
def test_a_failure_is_seen_replayed_and_accounted_for(
    queue: EventTable, outbox: Outbox, console: httpx.Client, es: Elasticsearch, index: str
) -> None:
    id = fail(queue, "drill")

    # Step 2: console and command line tell the same.
    seen = [event["id"] for event in ask(console, "failed")["events"]]
    listed = [event["id"] for event in outbox("list", "--status", "failed", "--json").json["events"]]
    assert seen == listed == [id]
    assert ask(console, "ops")["recent_failures"][0]["error_reason"] == "deterministic_exception"
    assert "drill" in console.get(console.base_url.copy_with(path="/ops/queue/failures/list")).raise_for_status().text

    # Step 3: the cause is fixed, the event replayed.
    fix(queue, "drill")
    console.post(f"events/{id}/replay", json={"by": PERSON, "reason": CONCLUSION}).raise_for_status()

    # Step 4: state, document, audit.
    eventually(lambda: ask(console, f"events/{id}")["status"] == "done")
    assert es.get(index=index, id="block:drill")["_source"] == {"title": "fixed"}
    assert ask(console, "failed")["events"] == []
    row = queue.rows("entity_id = 'drill'")[0]
    assert (row.replay_count, row.last_replayed_reason) == (1, CONCLUSION)

    # Step 5: the record names time, person and conclusion, and nobody has changed it.
    [act] = ask(console, "audit?action=REPLAY_BATCH_ITEM")["rows"]
    assert (act["event_id"], act["reason"]) == (id, CONCLUSION)
    assert PERSON in act["actor"]
    assert act["at"]
    assert outbox("audit", "verify").code == 0
