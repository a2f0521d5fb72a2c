"""A projector that starts while something ends its connections: it waits, as it does for a database that is down."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.fixtures.depth import depth
from tests.fixtures.processes import StartProcess
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.busy(whole=True)
AT_ONCE = 5
ENDED_EACH = 10  # connections of each daemon; a start makes six


@contextmanager
def terminated(database: str) -> Iterator[list[int]]:
    """Whatever the program is connected by is ended every 25 ms; yields how many at each time."""
    over, ended = threading.Event(), list[int]()

    def terminate() -> None:
        with psycopg.connect(database, autocommit=True, application_name="test") as connection:
            while not over.wait(0.025):
                ended.append(
                    connection.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where datname = current_database() and application_name like 'outbox%'"
                    ).rowcount
                )

    thread = threading.Thread(target=terminate)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()


def test_no_start_ends_with_an_error_while_its_connections_are_terminated(
    start_daemon: StartProcess, queue: EventTable, database: str
) -> None:
    for number in range(depth(2, 20)):
        with terminated(database) as ended:
            daemons = [start_daemon() for _ in range(AT_ONCE)]
            eventually(lambda: sum(ended) >= ENDED_EACH * AT_ONCE, what="connections that were ended")
        queue.produce_many(3, entity_type=f"kind{number}")
        for daemon in daemons:
            daemon.wait_for_fact("worker.started")
        daemons[0].wait_until(lambda: set(queue.counts()) == {"done"}, "all events done")
        for daemon in daemons:
            assert daemon.terminate() == 0
            assert daemon.facts("loop.error") == []
