"""Versions grow in real time: no number is handed out twice, also over a crash, and the sequence keeps no cache."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres
from outbox.errors import OutboxError
from outbox.ports import Level
from outbox.store.documents import ViewDocuments
from outbox.store.pool import Database
from outbox.store.schema.migrate import migrate
from tests.fixtures.desks import Examine
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import eventually

CRASHES = 4
SETTINGS = {"max_connections": "60", "shared_buffers": "64MB", "fsync": "on"}


@pytest.fixture(scope="module")
def crashing() -> Iterator[EmbeddedPostgres]:
    """Its own, and on a disk: what was not flushed is lost with its processes."""
    with EmbeddedPostgres.temporary(settings=SETTINGS) as server:
        migrate(server.url)
        yield server


class Drawers:
    """Several processes' draws at once. `numbers`: all that were handed out."""

    def __init__(self, url: str) -> None:
        self.numbers: list[int] = []
        self._url = url
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._draw) for _ in range(3)]

    def __enter__(self) -> "Drawers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def beyond(self, number: int) -> bool:
        return len(self.numbers) > number

    def _draw(self) -> None:
        database = Database(self._url, size=1, timeout_seconds=1.0)
        database.open()
        documents = ViewDocuments(database, "search_documents", batch_bytes=1)
        while not self._over.is_set():
            try:
                self.numbers.append(documents.draw())
            except OutboxError:
                self._over.wait(0.01)
        database.close()


@contextmanager
def crash(server: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    """At the end of the block, with a writer whose transaction is still open; then it is there again."""
    writer = psycopg.connect(server.url)
    yield writer
    server.kill()
    writer.close()
    server.start()


TAKE = "select nextval('search_outbox_version') from generate_series(1, 40)"


@pytest.mark.release("one way to commit shows it, at five crashes each", keep="off")
@pytest.mark.parametrize("commit", ["on", "off"])
def test_no_number_is_handed_out_twice_over_crashes_of_postgresql(crashing: EmbeddedPostgres, commit: str) -> None:
    with psycopg.connect(crashing.url, autocommit=True) as connection:
        connection.execute(f"alter database postgres set synchronous_commit = '{commit}'".encode())
    with Drawers(crashing.url) as drawers:
        for _ in range(CRASHES):
            before = len(drawers.numbers)
            with crash(crashing) as writer:
                eventually(partial(drawers.beyond, before + 50), what="50 draws")
                writer.execute(TAKE)
        before = len(drawers.numbers)
        eventually(partial(drawers.beyond, before + 50), what="draws after the last crash")
    with psycopg.connect(crashing.url, autocommit=True) as connection:
        connection.execute("alter database postgres reset synchronous_commit")
    assert len(drawers.numbers) == len(set(drawers.numbers))


def test_a_draw_that_follows_a_number_logged_by_someone_else_is_durable(crashing: EmbeddedPostgres) -> None:
    """PostgreSQL logs 32 numbers ahead. Who takes one of those writes nothing to the log, and so waits for nothing."""
    database = Database(crashing.url, size=1, timeout_seconds=1.0)
    database.open()
    documents = ViewDocuments(database, "search_documents", batch_bytes=1)
    drawn = []
    for _ in range(CRASHES):
        with crash(crashing) as writer:
            writer.execute(TAKE)
            drawn.append(documents.draw())
        drawn.append(eventually(lambda: attempt(documents), what="a draw"))
    database.close()
    assert drawn == sorted(set(drawn))


def attempt(documents: ViewDocuments) -> int | None:
    try:
        return documents.draw()
    except OutboxError:
        return None


def test_a_sequence_that_could_hand_out_numbers_out_of_order_is_refused(
    connection: psycopg.Connection, examine: Examine, start_daemon: StartProcess
) -> None:
    connection.execute("alter sequence search_outbox_version cache 20")
    (found,) = examine()["schema"]
    assert found.level is Level.BAD
    assert "alter sequence search_outbox_version cache 1 increment by 1" in found.remedy
    daemon = start_daemon()
    assert daemon.wait() == 78
    assert "alter sequence search_outbox_version cache 1 increment by 1" in daemon.output
    connection.execute("alter sequence search_outbox_version cache 1 increment by 1")
    (found,) = examine()["schema"]
    assert found.level is Level.OK
