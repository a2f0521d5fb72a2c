"""`Outbox.wait`, its twin to await, and `?wait=` of the API: the answer comes when the event is settled."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx

from outbox import Outbox
from outbox.policy.event import Status
from outbox.policy.settle import DONE
from outbox.ports import EntityWait
from tests.fixtures.console import Served
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


def settle_all(queue: EventTable) -> None:
    """As a projector does: claimed, written, settled."""
    store = queue.store()
    claimed = queue.claim(store)
    store.settle(claimed.token, [(event.id, DONE) for event in claimed.events])


def soon(act: Callable[[], Any]) -> threading.Thread:
    """In a moment, in another thread: whoever waits must have begun."""
    thread = threading.Timer(0.3, act)
    thread.start()
    return thread


def test_it_returns_when_the_event_is_settled(queue: EventTable, database: str) -> None:
    with Outbox(database) as outbox:
        id = queue.produce()
        began = time.monotonic()
        later = soon(lambda: settle_all(queue))
        assert outbox.wait(id, PATIENCE_SECONDS) is Status.DONE
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        later.join()
        assert outbox.wait(str(id)) == "done"


# As a server that forks its workers after it has waited once. Each process closes what it opened, not its parent's.
FORKED = """
import os, sys
from outbox import Outbox

outbox = Outbox(sys.argv[1])
outbox.wait(sys.argv[2], 5)
outbox.failed_stats()
children = []
for _ in range(2):
    if child := os.fork():
        children.append(child)
        continue
    try:
        for _ in range(50):
            assert outbox.wait(sys.argv[2], 5) == "done"
        assert outbox.failed_stats().total == 0
        outbox.close()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
for _ in range(50):
    assert outbox.wait(sys.argv[2], 5) == "done"
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
assert outbox.wait(sys.argv[2], 5) == "done" and outbox.failed_stats().total == 0
outbox.close()
"""


def test_a_forked_process_opens_a_connection_of_its_own(queue: EventTable, database: str) -> None:
    id = queue.produce(status="done")
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, database, str(id)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_SECONDS * 2, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def was_read(outbox: Outbox) -> bool:
    return any(isinstance(w.id, EntityWait) and w.id.until for w in outbox._settle_watch()._waiters)


class TestEntity:
    """An entity whose events triggers write: nobody has their ids."""

    def test_it_waits_for_all_events_that_were_there(self, queue: EventTable, database: str) -> None:
        with Outbox(database) as outbox:
            assert outbox.wait("article", 5) is Status.DONE, "nothing is open"
            for _ in range(2):
                queue.produce(entity_id="5")
            queue.produce(entity_id="6")
            assert outbox.wait("article", 5, 0.1) is Status.PENDING
            later = soon(lambda: settle_all(queue))
            assert outbox.wait("article", "5", seconds=PATIENCE_SECONDS) is Status.DONE
            later.join()

    def test_a_fan_out_to_its_type_counts_with_the_refreshes_that_it_writes(
        self, queue: EventTable, database: str
    ) -> None:
        write = (
            "insert into search_outbox_events (entity_type, entity_id, op, fanout_id) values ('article', %s, %s, %s)"
        )
        queue.connection.execute(write.encode(), ["all", "fanout", None])
        fanout = queue.value("select id from search_outbox_events where op = 'fanout'")
        done = "update search_outbox_events set status = 'done' where op = %s"
        with Outbox(database) as outbox:
            states: list[Status] = []
            thread = threading.Thread(target=lambda: states.append(outbox.wait("article", 5, PATIENCE_SECONDS)))
            thread.start()
            eventually(lambda: was_read(outbox), what="the first reading")
            queue.connection.execute(write.encode(), ["5", "refresh", fanout])
            queue.connection.execute(done.encode(), ["fanout"])
            thread.join(0.6)
            assert states == [], "its refresh is open"
            queue.connection.execute(done.encode(), ["refresh"])
            thread.join(PATIENCE_SECONDS)
            assert states == [Status.DONE]


class TestApi:
    def test_the_answer_waits_for_the_event(self, console: Served, queue: EventTable) -> None:
        id = queue.produce()
        later = soon(lambda: settle_all(queue))
        reply = console.client.get(f"/api/v1/events/{id}", params={"wait": 10})
        later.join()
        assert (reply.status_code, reply.json()["status"]) == (200, "done")


def answer(url: str, id: UUID) -> str:
    reply = httpx.get(f"{url}/api/v1/events/{id}", params={"wait": 10}, timeout=PATIENCE_SECONDS)
    return str(reply.raise_for_status().json()["status"])
