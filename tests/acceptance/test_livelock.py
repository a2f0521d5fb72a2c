"""A daemon whose batches go back unsent again and again notices it by itself, whatever the cause."""

import sys
from pathlib import Path

import psycopg

from labs.mutations import Change, Mutation, mutate
from tests.fixtures.metrics import metric, ready
from tests.fixtures.processes import ROOT, StartProcess, find_free_port
from tests.fixtures.waiting import eventually

TWO_CLOCKS = Mutation(
    "two_clocks",
    "a claim is dated by another clock than the one that its lease is counted by",
    "",
    [Change("outbox/daemon/claiming.py", "self.boot_clock()", "self.boot_clock() - 100.0")],
)
FROM_COPY = "import sys; sys.path.insert(0, sys.argv.pop(1)); from outbox.cli import main; main()"


def test_a_livelock_is_warned_of_counted_paced_and_named_by_readyz(
    start_process: StartProcess,
    database: str,
    elastic_url: str,
    index: str,
    connection: psycopg.Connection,
    tmp_path: Path,
) -> None:
    """Every lease seems expired: as on a machine that was younger than the clock of another part of the daemon."""
    connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op, payload)"
        " select 'article', n::text, 'upsert', '{\"title\": \"x\"}' from generate_series(1, 5) n"
    )
    daemon = start_process(
        [sys.executable, "-c", FROM_COPY, str(mutate(ROOT, tmp_path / "code", TWO_CLOCKS)), "run"],
        DATABASE_URL=database,
        ELASTIC_URL=elastic_url,
        ELASTIC_INDEX=index,
        OUTBOX_METRICS_PORT=str(find_free_port()),
        OUTBOX_LOG_FORMAT="json",
        OUTBOX_CONCURRENCY="1",
        OUTBOX_FRESHNESS_SECONDS="5",
        OUTBOX_BASE_BACKOFF_SECONDS="0.2",
    )
    line = daemon.wait_for_fact("batch.no_progress", level="warning")
    assert (line["reason"], line["in_a_row"]) == ("lease_short", 3)
    assert line["detail"].endswith("s of its lease of 60 s were left")
    assert line["runbook"] == "docs/runbooks/OutboxNoProgress.md"
    assert (ROOT / line["runbook"]).is_file()
    assert metric(daemon, "outbox_no_progress_batches_total", reason="lease_short") >= 3

    def named() -> bool:
        status, body = ready(daemon)
        return status == 503 and "batches without progress in a row" in body["checks"]["last_success"]["detail"]

    eventually(named, within=60, what="/readyz names the livelock")
    waits = [fact["wait_seconds"] for fact in daemon.facts("batch.no_progress")]
    assert waits[3] > waits[0], "the lane rests longer each time"
    assert daemon.terminate() == 0
    rows = connection.execute("select distinct status, attempts from search_outbox_events").fetchall()
    assert rows == [("pending", 0)], "nothing is lost, and no attempt is spent"
