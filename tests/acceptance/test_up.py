"""`outbox up`: everything from one command, searched and measured, and gone after Ctrl-C."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.embedded.distribution import fetched_distribution
from outbox.embedded.elasticsearch import to_stderr
from outbox.embedded.folders import default_data_dir
from outbox.embedded.process import await_end, serves_in
from tests.fixtures.processes import RunningProcess, StartProcess, http_get
from tests.fixtures.waiting import eventually


def started(up: RunningProcess, within: float) -> dict[str, Any]:
    """Where everything is, as the first JSON line says."""
    line = up.wait_for_line('"metrics_url"', within)
    return dict(json.loads(line))


def search(where: dict[str, Any]) -> dict[str, Any]:
    """The search that was printed, tried as a person would."""
    done = subprocess.run(["sh", "-c", where["search"]], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.fixture
def given(empty_database: str, elastic_url: str, absent_index: str, tmp_path: Path) -> dict[str, str | None]:
    return {
        "DATABASE_URL": empty_database,
        "ELASTIC_URL": elastic_url,
        "ELASTIC_INDEX": absent_index,
        "OUTBOX_DATA_DIR": str(tmp_path),
    }


def test_given_servers_are_used_and_the_sample_is_searchable_at_once(
    start_process: StartProcess, given: dict[str, str | None], es: Elasticsearch, empty_database: str
) -> None:
    up = start_process([sys.executable, "-m", "outbox", "up", "--json", "--rate", "20"], **given)
    where = started(up, 90)
    assert search(where)["hits"]["total"]["value"] > 0
    assert "outbox_processed_total" in http_get(where["metrics_url"] + "/metrics")[1]
    assert json.loads(http_get(where["metrics_url"] + "/readyz")[1])["status"] == "ready"
    assert "Outbox" in http_get(where["console_url"])[1]
    assert Path(where["database_url_file"]).read_text().strip() == empty_database
    assert Path(where["database_url_file"]).stat().st_mode & 0o777 == 0o600

    with psycopg.connect(empty_database, autocommit=True) as connection:
        # The catalogue lives: deletes among the changes, every document equal to its row.
        eventually(
            lambda: (
                connection.execute("select count(*) from search_outbox_events where op = 'delete'").fetchone() != (0,)
            ),
        )
        connection.execute(
            "update outbox_sample.articles set title = 'Zebra crossings'"
            " where id = (select min(id) from outbox_sample.articles)"
        )
        eventually(
            lambda: (
                es.indices.refresh(index=where["index"]),
                es.count(index=where["index"], q="title:zebra")["count"],
            )[1],
        )
        had = psutil.Process(up.pid).children(recursive=True)
        assert had, "the projector"
        up.signal(signal.SIGINT)
        assert up.wait() == 0, up.output
        assert "stopped" in up.output
        # The projector drained: nobody holds a row, its worker has left, its process is gone. Not its port: another
        # process may have got that meanwhile.
        assert await_end(had, 0) == []
        assert connection.execute("select count(*) from search_outbox_leases").fetchone() == (0,)
        assert connection.execute("select distinct state from search_outbox_workers").fetchall() == [("stopped",)]
        rows = connection.execute("select count(*) from outbox_sample.articles").fetchone()
    es.indices.refresh(index=where["index"])
    assert rows is not None
    assert (
        abs(es.count(index=where["index"])["count"] - rows[0]) <= 5
    )  # what changed between the last claim and the end
    assert not Path(where["database_url_file"]).exists()


def test_sigterm_stops_it_as_well_and_it_can_be_started_again(
    start_process: StartProcess, given: dict[str, str | None]
) -> None:
    for _ in range(2):
        up = start_process([sys.executable, "-m", "outbox", "up", "--json"], **given)
        started(up, 90)
        assert up.terminate() == 0, up.output


def test_a_database_with_events_of_its_own_gets_no_sample(
    start_process: StartProcess, given: dict[str, str | None], database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op) values ('article', '1', 'delete')"
        )
    up = start_process([sys.executable, "-m", "outbox", "up", "--json"], **{**given, "DATABASE_URL": database})
    assert started(up, 90)["sample"] is False
    assert up.terminate() == 0
    with psycopg.connect(database) as connection:
        assert connection.execute("select to_regnamespace('outbox_sample')").fetchone() == (None,)


def test_a_projector_that_dies_ends_it_with_the_end_of_its_log(
    start_process: StartProcess, given: dict[str, str | None]
) -> None:
    up = start_process(
        [sys.executable, "-m", "outbox", "up", "--json", "--rate", "0"], **given, OUTBOX_ENTITY_TYPES="article"
    )
    assert up.wait() == 1
    assert "outbox migrate --by-type" in up.output


@pytest.mark.slow
def test_on_a_bare_machine_it_brings_its_own_servers_and_leaves_none(
    start_process: StartProcess, server_folder: Path
) -> None:
    """The whole stack embedded, once: PostgreSQL, Elasticsearch, projector, sample. Its data is fresh, the programs
    are those that were fetched before."""
    home = fetched_distribution(default_data_dir(), "8", to_stderr).home
    env = {"OUTBOX_DATA_DIR": str(server_folder), "OUTBOX_ES_HOME": str(home)}
    up = start_process([sys.executable, "-m", "outbox", "up", "--json"], **env)
    where = started(up, 300)
    assert search(where)["hits"]["total"]["value"] > 0
    assert "***" in where["database_url"]
    assert where["database_url"] != Path(where["database_url_file"]).read_text().strip()
    assert http_get(where["metrics_url"] + "/healthz")[0] == 200
    had = psutil.Process(up.pid).children(recursive=True)
    assert len(had) >= 3, "PostgreSQL, Elasticsearch and the projector"
    up.signal(signal.SIGINT)
    assert up.wait() == 0, up.output
    assert await_end(had, 0) == []
    assert [process for process in psutil.process_iter() if serves_in(process, server_folder)] == []
