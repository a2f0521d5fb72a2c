"""`outbox backfill` and `outbox refresh` as people call them: real processes, kill -9, Ctrl-C, exit codes."""

import re
import signal
import sys

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.reindex.refresh import A_STEP as STEP
from tests.fixtures.commands import Outbox
from tests.fixtures.failures import value
from tests.fixtures.joined import TABLES, VIEW
from tests.fixtures.processes import StartProcess

SIZE = 6_000


@pytest.fixture
def table(connection: psycopg.Connection) -> psycopg.Connection:
    connection.execute((TABLES + VIEW).encode())
    connection.execute(
        "insert into articles (id, title) select g, 'title ' || g from generate_series(1, %s::int) g", (SIZE,)
    )
    return connection


def test_a_backfill_that_is_killed_goes_on_at_its_cursor(
    table: psycopg.Connection,
    outbox: Outbox,
    servers: dict[str, str | None],
    start_process: StartProcess,
    es: Elasticsearch,
) -> None:
    written = "select written from search_outbox_backfills order by id desc limit 1"
    backfill = start_process([sys.executable, "-m", "outbox", "backfill", "--rate", "400"], **servers)
    backfill.wait_until(lambda: value(table, written) >= 1000, "a page")
    refused = outbox("backfill")
    assert (refused.code, "A backfill is at work" in refused.err) == (1, True), refused
    backfill.kill()
    before = value(table, written)
    assert 0 < before < SIZE
    resumed = outbox("backfill", "--resume", "--json", "--by", "alice")
    assert resumed.code == 0, resumed
    assert f"{before:,} done" in resumed.err
    assert (resumed.json["status"], resumed.json["written"], resumed.json["refused"]) == ("finished", SIZE, 0)
    index = str(servers["ELASTIC_INDEX"])
    es.indices.refresh(index=index)
    assert es.count(index=index)["count"] == SIZE
    nothing = outbox("backfill", "--resume")
    assert (nothing.code, "outbox backfill" in nothing.err) == (1, True)
    again = outbox("backfill", "--type", "article")
    assert (again.code, again.out.startswith(f"{SIZE:,} documents of article written in")) == (0, True), again


def test_refreshes_are_written_by_id_by_condition_and_for_all(table: psycopg.Connection, outbox: Outbox) -> None:
    one = outbox("refresh", "--type", "article", "--id", "7", "--id", "9", "--id", "7")
    assert (one.code, one.out.startswith("2 refreshes written"), "outbox wait --caught-up" in one.err) == (
        0,
        True,
        True,
    )
    some = outbox("refresh", "--type", "article", "--where", "entity_id > 5990", "--json")
    assert (some.code, some.json["written"]) == (0, 10)
    counted = outbox("refresh", "--all", "--dry-run", "--json")
    assert (counted.code, counted.json) == (0, {"dry_run": True, "entity_types": ["article"], "count": SIZE})
    unasked = outbox("refresh", "--all")
    assert (unasked.code, "give --yes" in unasked.err) == (2, True)
    rest = outbox("refresh", "--all", "--after", "article:5000", "--rate", "0", "--yes", "--by", "alice", "--json")
    assert (rest.code, rest.json["by_type"]) == (0, {"article": 1000})
    assert value(table, "select count(*) from search_outbox_events where op = 'refresh'") == 1012
    assert value(table, "select count(*) from search_outbox_audit where actor = 'alice'") == 2


def test_a_refresh_that_is_stopped_says_how_to_go_on(
    table: psycopg.Connection, outbox: Outbox, servers: dict[str, str | None], start_process: StartProcess
) -> None:
    counted = "select count(*) from search_outbox_events"
    command = ["refresh", "--type", "article", "--where", "entity_id > 10", "--yes", "--rate", "500"]
    refresh = start_process([sys.executable, "-m", "outbox", *command], **servers)
    refresh.wait_until(lambda: value(table, counted) > STEP, "a second step")
    refresh.signal(signal.SIGINT)
    assert refresh.wait() == 130, refresh.output
    last = value(table, "select max(entity_id::bigint) from search_outbox_events")
    told = re.search(r"outbox refresh --type article --where 'entity_id > 10' --after article:(\d+)", refresh.output)
    assert told is not None, refresh.output
    assert last - STEP <= int(told[1]) <= last  # Ctrl-C may come between a step's commit and its account
    assert outbox(*command, "--rate", "0", "--after", f"article:{told[1]}").code == 0
    assert value(table, "select count(distinct entity_id) from search_outbox_events") == SIZE - 10
