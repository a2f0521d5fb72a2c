"""The drill: make a failure, see it in console and command line, replay it, and check state, document and audit."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from elasticsearch import Elasticsearch

from tests.fixtures.commands import Outbox
from tests.fixtures.console import console_process
from tests.fixtures.processes import RunningProcess, StartProcess, http_get
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.busy
PERSON, CONCLUSION = "alice", "drill: producer fixed"


class ConsoleClient:
    """The console's API, asked as a person's script would."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = httpx.Client(base_url=f"{address}/api/v1/", timeout=PATIENCE_SECONDS, trust_env=False)

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.client.post(path, json=body).raise_for_status().json()


@pytest.fixture
def console(start_process: StartProcess, servers: dict[str, str | None]) -> Iterator[ConsoleClient]:
    with console_process(start_process, servers) as (_, address):
        made = ConsoleClient(address)
        with made.client:
            yield made


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
@pytest.mark.parametrize("way", ["command line", "console"])
def test_a_failure_is_seen_replayed_and_accounted_for(
    queue: EventTable, outbox: Outbox, console: ConsoleClient, es: Elasticsearch, index: str, way: str
) -> None:
    id = fail(queue, "drill")

    # Step 2: console and command line tell the same.
    seen = [event["id"] for event in console.get("failed")["events"]]
    listed = [event["id"] for event in outbox("list", "--status", "failed", "--json").json["events"]]
    assert seen == listed == [id]
    assert console.get("ops")["recent_failures"][0]["error_reason"] == "deterministic_exception"
    status, page = http_get(f"{console.address}/ops/queue/failures/list")
    assert status == 200
    assert "drill" in page

    # Step 3: the cause is fixed, the event replayed.
    fix(queue, "drill")
    if way == "console":
        console.post(f"events/{id}/replay", {"by": PERSON, "reason": CONCLUSION})
    else:
        assert outbox("replay", "--id", id, "--by", PERSON, "--reason", CONCLUSION).code == 0

    # Step 4: state, document, audit.
    eventually(lambda: console.get(f"events/{id}")["status"] == "done")
    assert es.get(index=index, id="block:drill")["_source"] == {"title": "fixed"}
    assert console.get("failed")["events"] == []
    row = queue.rows("entity_id = 'drill'")[0]
    assert (row.replay_count, row.last_replayed_reason) == (1, CONCLUSION)

    # Step 5: the record names time, person and conclusion, and nobody has changed it.
    [act] = console.get("audit?action=REPLAY_BATCH_ITEM")["rows"]
    assert (act["event_id"], act["reason"]) == (id, CONCLUSION)
    assert PERSON in act["actor"]
    assert act["at"]
    assert outbox("audit", "verify").code == 0
