"""The console's own limits: a slow database is a 503 in seconds, a full pool too, and an old reading is still shown."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outbox.app import console as console_of
from outbox.web.auth import ACT as ACTING
from outbox.web.auth import RateLimits
from tests.fixtures.console import ACT, Served, post
from tests.fixtures.failures import events
from tests.fixtures.waiting import eventually


@pytest.fixture
def locked(database: str) -> Iterator[psycopg.Connection]:
    """A session that holds the events as `alter table` would."""
    holder = psycopg.connect(database)
    holder.execute("lock table search_outbox_events in access exclusive mode")
    yield holder
    holder.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the limit on a question, whose whole length the next test keeps to."""
    monkeypatch.setattr(console_of, "READ_MS", 300)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("path", ["/api/v1/replays", "/ops/verify"])
def test_a_single_statement_has_the_same_limit(console: Served, database: str, path: str) -> None:
    """Each is one statement, in no transaction of ours; without a limit it would hold a place in the pool for ever."""
    with psycopg.connect(database) as holder:
        for table in ("replays", "webhook_deliveries", "verifications"):
            holder.execute(f"lock table search_outbox_{table} in access exclusive mode".encode())
        began = time.monotonic()
        assert console.client.get(path).status_code == 503
        assert time.monotonic() - began < 25, "the table stays locked for as long as this test looks"


def test_a_pool_that_is_used_up_is_a_503_and_not_a_queue_without_end(
    console: Served, locked: psycopg.Connection
) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(12) as people:
        answers = list(people.map(lambda _: console.client.get("/api/v1/failed"), range(12)))
    assert {answer.status_code for answer in answers} == {503}
    assert time.monotonic() - began < 20
    assert console.client.get("/healthz").status_code == 200
    locked.close()
    eventually(lambda: console.client.get("/api/v1/failed").status_code == 200, what="it goes on")


@pytest.mark.usefixtures("quick")
def test_the_first_page_shows_its_last_reading_while_the_database_is_down(
    console: Served, connection: psycopg.Connection, database: str
) -> None:
    events(connection, 3)
    assert console.client.get("/api/v1/ops").json()["stale"] is None
    with psycopg.connect(database) as holder:
        holder.execute("lock table search_outbox_events in access exclusive mode")

        def old() -> bool:
            return console.client.get("/api/v1/ops").json()["stale"] is not None

        eventually(old, what="an old reading that says so")
        page = console.client.get("/ops/queue")
        assert page.status_code == 200
        assert "What you see is" in page.text
        assert "3 events have failed" in page.text


def test_acting_is_paced(console: Served) -> None:
    console.app.state.gate.pace = RateLimits(lambda: 0.0)
    client = console.client
    answers = [post(client, "/resume", ACT) for _ in range(ACTING.burst + 2)]
    assert {answer.status_code for answer in answers[:-2]} == {200}
    assert [answer.status_code for answer in answers[-2:]] == [429, 429]
    assert answers[-1].headers["retry-after"] == "1"
