"""PostgreSQL accepts connections and answers nothing: who restarts a projector for that helps nobody."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres
from outbox.store.schema.migrate import migrate
from tests.fixtures.processes import StartProcess, find_free_port, http_get
from tests.fixtures.servers import POSTGRES_SETTINGS

pytestmark = pytest.mark.busy(whole=True)
# As `outbox run`, but a loop counts as hung after seconds and not minutes.
QUICK_TO_JUDGE = """
from outbox.telemetry import beats
beats.DEFAULT_LIMIT_SECONDS = 4.0
import sys
sys.argv = ["outbox", "run"]
from outbox.cli import main
main()
"""
LONGEST_LIMIT = 10.0  # of a lane: OUTBOX_MAX_PROCESSING_SECONDS and the 4 s above
INSERT = """insert into search_outbox_events (entity_type, entity_id, op, event_version, payload)
            values ('article', %s, 'upsert', nextval('search_outbox_version'), '{"title": "x"}')"""


@contextmanager
def frozen(connection: psycopg.Connection) -> Iterator[None]:
    """The whole server behind this connection. The postmaster first: it would start new backends."""
    postmaster = psutil.Process(connection.info.backend_pid).parent()
    assert postmaster is not None
    stopped = [postmaster]
    postmaster.suspend()
    try:
        for backend in postmaster.children(recursive=True):
            backend.suspend()
            stopped.append(backend)
        yield
    finally:
        for process in reversed(stopped):
            process.send_signal(signal.SIGCONT)


def test_liveness_does_not_depend_on_a_database_that_answers_nothing(
    start_process: StartProcess, elastic_url: str, index: str
) -> None:
    with EmbeddedPostgres.temporary(settings=POSTGRES_SETTINGS) as server:
        migrate(server.url)
        daemon = start_process(
            [sys.executable, "-c", QUICK_TO_JUDGE],
            DATABASE_URL=server.url,
            ELASTIC_URL=elastic_url,
            ELASTIC_INDEX=index,
            OUTBOX_METRICS_PORT=str(find_free_port()),
            OUTBOX_LOG_FORMAT="json",
            OUTBOX_LEASE_SECONDS="3",
            OUTBOX_RECLAIM_INTERVAL_SECONDS="1",
            OUTBOX_MAX_PROCESSING_SECONDS="6",
        )
        daemon.wait_for_http("/readyz")
        with psycopg.connect(server.url, autocommit=True) as connection:
            with frozen(connection):
                ends = time.monotonic() + LONGEST_LIMIT + 5
                while time.monotonic() < ends:
                    status, body = http_get(daemon.metrics_url + "/healthz")
                    assert status == 200, body
                    time.sleep(0.25)
                print(http_get(daemon.metrics_url + "/readyz"))
            connection.execute(INSERT, ["1"])
            done = "select count(*) from search_outbox_events where status = 'done'"
            daemon.wait_until(lambda: connection.execute(done).fetchone() == (1,), "the event done")
        loops = json.loads(daemon.wait_for_http("/healthz"))["loops"]
        assert all(loop["ok"] for loop in loops.values() if loop["needed"])
        assert daemon.terminate() == 0
