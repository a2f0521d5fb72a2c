"""`Outbox.wait`, its twin to await, and `?wait=` of the API: the answer comes when the event is settled."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from outbox import AsyncOutbox, Outbox
from outbox.app.settling import open_settle_watch
from outbox.config import load_settings
from outbox.errors import DatabaseDown, NotFound, UsageError
from outbox.ops import settling
from outbox.policy.event import Status
from outbox.policy.settle import DONE
from outbox.ports import EntityWait
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate
from tests.fixtures.console import Served
from tests.fixtures.producers import ANYWHERE
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


def test_it_returns_the_state_at_the_end_of_the_time(queue: EventTable, database: str) -> None:
    with Outbox(database) as outbox:
        id = queue.produce()
        assert outbox.wait(id, 0.1) is Status.PENDING
        queue.claim()
        assert outbox.wait(id, 0.1) is Status.PROCESSING
        failed = queue.produce(status="failed")
        assert outbox.wait(failed, PATIENCE_SECONDS) is Status.FAILED
        with pytest.raises(NotFound, match="not committed"):
            outbox.wait(uuid4(), 0.1)
        for wrong in (-1, 301, float("nan")):
            with pytest.raises(UsageError, match="0 to 300"):
                outbox.wait(id, wrong)


def test_many_tasks_wait_over_one_connection(queue: EventTable, database: str) -> None:
    ids = [queue.produce() for _ in range(100)]

    async def run() -> list[Status]:
        async with AsyncOutbox(database) as outbox:
            waiting = [asyncio.create_task(outbox.wait(id, PATIENCE_SECONDS)) for id in ids]
            await asyncio.sleep(0.2)
            sessions = queue.value("select count(*) from pg_stat_activity where application_name = 'outbox library'")
            assert sessions == 1
            await asyncio.to_thread(settle_all, queue)
            with pytest.raises(NotFound):
                await outbox.wait(uuid4(), 0.1)
            return await asyncio.gather(*waiting)

    assert asyncio.run(run()) == [Status.DONE] * 100


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


def test_a_database_that_is_down_is_reported_at_about_the_end_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace is shorter here than the pool's own time limit: which of the two ended it is seen."""
    monkeypatch.setattr(settling, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr("outbox.app.settling.Database", partial(Database, timeout_seconds=1.5))
    with Outbox(ANYWHERE) as outbox, pytest.raises(DatabaseDown, match=r"no answer within 0\.2 s"):
        outbox.wait(uuid4(), 0.2)

    async def run() -> None:
        async with AsyncOutbox(ANYWHERE) as outbox:
            with pytest.raises(DatabaseDown, match=r"no answer within 0\.2 s"):
                await outbox.wait(uuid4(), 0.2)

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [None, "5"])
def test_what_is_no_id_of_an_event_is_refused(wrong: Any) -> None:
    with Outbox(ANYWHERE) as outbox, pytest.raises(UsageError, match="is not an event's id, which is a uuid"):
        outbox.wait(wrong)

    async def run() -> None:
        with pytest.raises(UsageError, match="is not an event's id, which is a uuid"):
            await AsyncOutbox(ANYWHERE).wait(wrong)

    asyncio.run(run())


def test_a_settle_notifies_where_listen_is_on(queue: EventTable, database: str) -> None:
    migrate(database, notify=True)
    settings = load_settings(environ={"DATABASE_URL": database, "OUTBOX_LISTEN": "true"})
    with open_settle_watch(settings, application="test") as watch:
        readings: list[float] = []
        read = watch._statuses
        watch._statuses = lambda ids: (readings.append(time.monotonic()), read(ids))[1]
        id = queue.produce()
        waiting = watch.submit(id, PATIENCE_SECONDS)
        eventually(lambda: watch._hears, what="LISTEN")
        eventually(lambda: time.monotonic() - readings[-1] > 0.3, what="a rest longer than any of polling")
        settle_all(queue)
        settled = time.monotonic()
        assert waiting.result(PATIENCE_SECONDS) is Status.DONE
        assert time.monotonic() - settled < PATIENCE_SECONDS / 2


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

    def test_what_is_written_later_is_not_waited_for(self, queue: EventTable, database: str) -> None:
        with Outbox(database) as outbox:
            first = queue.produce(entity_id="5")
            waiting: list[Status] = []
            thread = threading.Thread(target=lambda: waiting.append(outbox.wait("article", 5, PATIENCE_SECONDS)))
            thread.start()
            eventually(lambda: was_read(outbox), what="the first reading")
            queue.produce(entity_id="5")
            queue.connection.execute("update search_outbox_events set status = 'done' where id = %s", [first])
            thread.join(PATIENCE_SECONDS)
            assert waiting == [Status.DONE]

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

    def test_with_the_event_log_nobody_here_knows(self, logical_database: str) -> None:
        migrate(logical_database, log=True)
        with Outbox(logical_database) as outbox, pytest.raises(NotFound, match="outbox wait --caught-up"):
            outbox.wait("article", 5, 0.1)


class TestApi:
    def test_the_answer_waits_for_the_event(self, console: Served, queue: EventTable) -> None:
        id = queue.produce()
        later = soon(lambda: settle_all(queue))
        reply = console.client.get(f"/api/v1/events/{id}", params={"wait": 10})
        later.join()
        assert (reply.status_code, reply.json()["status"]) == (200, "done")

    def test_waiting_requests_of_one_client_share_a_reader_and_hold_up_no_other(
        self, console: Served, queue: EventTable
    ) -> None:
        id = queue.produce()
        with ThreadPoolExecutor(25) as pool:  # 30 requests of one client are taken at once
            asking = [pool.submit(answer, console.url, id) for _ in range(25)]
            settling = console.app.state.services.settling
            eventually(lambda: len(settling._waiters) == 25, what="all of them waiting")
            assert [thread.name for thread in threading.enumerate()].count("settle-reader") == 1
            assert httpx.get(f"{console.url}/api/v1/events/{id}", timeout=8).json()["status"] == "pending"
            settle_all(queue)
            assert {each.result(PATIENCE_SECONDS) for each in asking} == {"done"}


def answer(url: str, id: UUID) -> str:
    reply = httpx.get(f"{url}/api/v1/events/{id}", params={"wait": 10}, timeout=PATIENCE_SECONDS)
    return str(reply.raise_for_status().json()["status"])
