"""Commands as real processes: exit codes, words on stderr, data on stdout, nothing secret anywhere."""

import json
import sys
import time

import pytest

from tests.fixtures.commands import Outbox, refused
from tests.fixtures.processes import StartProcess
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable

AWAY = "postgresql://u:hunter2@127.0.0.1:1/d"


# Wrong or missing settings


def test_all_wrong_settings_are_reported_at_once_each_with_a_remedy(outbox: Outbox) -> None:
    called = outbox(
        "run",
        DATABASE_URL=None,
        OUTBOX_LEASE_SECONDS="1",
        OUTBOX_BATCH_SIZE="many",
        ELASTIC_URL="ftp://x",
        OUTBOX_LEESE_SECONDS="3",
    )
    refused(called, 78, "DATABASE_URL", "OUTBOX_LEASE_SECONDS", "OUTBOX_BATCH_SIZE", "ELASTIC_URL")
    assert "Did you mean OUTBOX_LEASE_SECONDS?" in called.err


# Servers that are down, wrong or not ready


def test_migrate_waits_for_the_database_and_for_one_that_goes_away_again(
    start_process: StartProcess, servers: dict[str, str | None], empty_database: str
) -> None:
    """As that of the image of PostgreSQL does, which first starts a temporary server."""
    with proxy_to(empty_database) as (proxy, url):
        proxy.cut()
        migrating = start_process([sys.executable, "-m", "outbox", "migrate"], **{**servers, "DATABASE_URL": url})
        migrating.wait_for_line("PostgreSQL does not answer: ")
        proxy.heal()
        migrating.wait_for_line("applying 0002_events")
        proxy.cut()
        time.sleep(0.5)
        proxy.heal()
        assert migrating.wait() == 0, migrating.output
    again = start_process([sys.executable, "-m", "outbox", "migrate"], **{**servers, "DATABASE_URL": empty_database})
    assert again.wait() == 0
    assert "nothing to do" in again.output


def test_run_waits_for_the_database_and_says_so_unless_asked_not_to(
    outbox: Outbox, start_process: StartProcess, servers: dict[str, str | None]
) -> None:
    started = outbox("run", "--no-wait", DATABASE_URL=AWAY)
    assert started.code == 75
    assert "PostgreSQL does not answer" in started.err
    assert "hunter2" not in started.err

    waiting = start_process([sys.executable, "-m", "outbox", "run"], **{**servers, "DATABASE_URL": AWAY})
    waiting.wait_for_line("trying again")
    assert json.loads(waiting.wait_for_http("/readyz", 503))["checks"]["database"]["ok"] is False
    assert waiting.terminate() == 0
    assert "hunter2" not in waiting.output


def test_a_database_without_the_schema_is_78_and_names_the_command(outbox: Outbox, empty_database: str) -> None:
    for command in (["run"], ["status"]):
        refused_as = outbox(*command, DATABASE_URL=empty_database)
        assert refused_as.code == 78, refused_as
        assert "outbox migrate" in refused_as.err


def test_a_port_that_is_taken_is_78(outbox: Outbox, start_daemon: StartProcess) -> None:
    running = start_daemon()
    running.wait_for_fact("worker.started")
    called = outbox("run", OUTBOX_METRICS_PORT=running.env["OUTBOX_METRICS_PORT"])
    refused(called, 78, "OUTBOX_METRICS_PORT")


def test_claims_by_type_without_their_indexes_are_78(outbox: Outbox) -> None:
    called = outbox("run", "--once", "--entity-type", "article")
    assert called.code == 78
    assert "outbox migrate --by-type" in called.err
    refused(outbox("pause", "--entity-type", "a", "--by", "me", "--reason", "x"), 78, "outbox migrate --by-type")


# Usage


@pytest.mark.parametrize(
    "command",
    [
        ["nope"],
        ["show", "not-a-uuid"],
        ["list", "--limit", "0"],
        ["list", "--since", "yesterday-ish"],
        ["list", "--after", "forged:1"],
        ["wait", "--caught-up", "--timeout", "-1"],
        ["pause", "--by", "", "--reason", "x"],
        ["resume", "--let-fail", "<script>", "--by", "me", "--reason", "x"],
        ["attach", "no_such_table", "--type", "t", "--id", "id"],
        ["attach", "search_outbox_events", "--type", "t", "--id", "id"],
        ["attach", "t", "--type", "t"],
        ["explain-error", "not json"],
        ["index", "create", "--mappings", "/no/such/file"],
        ["detach", "t"],
    ],
)
def test_a_command_that_is_invalid_is_2_and_changes_nothing(outbox_here: Outbox, command: list[str]) -> None:
    refused(outbox_here(*command), 2)


# Data


def test_every_command_that_prints_data_prints_json(outbox_here: Outbox, queue: EventTable) -> None:
    id = queue.produce(payload='{"big": 12345678901234567890}')
    queue.connection.execute("create table things (id int primary key)")
    for command in (
        ["config", "check"],
        ["migrate"],
        ["migrate", "status"],
        ["migrate", "plan", "--by-type"],
        ["status"],
        ["list"],
        ["show", str(id)],
        ["index", "check"],
        ["attach", "things", "--type", "thing", "--id", "id"],
        ["detach", "things", "--yes"],
        ["pause", "--by", "me", "--reason", "x"],
        ["resume", "--by", "me", "--reason", "x"],
        ["explain-error", '{"index": {"status": 200}}'],
    ):
        called = outbox_here(*command, "--json")
        assert called.code == 0, called
        assert called.json is not None
    assert '"payload": {"big": 12345678901234567890}' in outbox_here("show", str(id), "--json").out


def test_version_and_help(outbox: Outbox) -> None:
    assert outbox("--version", cold=True).out.startswith("outbox 0.")
    helped = outbox("--help", cold=True)
    assert helped.code == 0
    assert "Examples:" in helped.out
