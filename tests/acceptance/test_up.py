"""`outbox up`: everything from one command, searched and measured, and gone after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.embedded.pins import java_for_this_machine
from outbox.embedded.sample import SampleProducer
from tests.fixtures.bare import bare_machine
from tests.fixtures.embedded import cannot_show
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
        running = psutil.Process(up.pid).children(recursive=True)
        assert running, "projector and console"
        up.signal(signal.SIGINT)
        assert up.wait() == 0, up.output
        assert "stopped" in up.output
        # The projector drained: nobody holds a row, its worker has left, its page is gone.
        assert connection.execute("select count(*) from search_outbox_leases").fetchone() == (0,)
        assert connection.execute("select distinct state from search_outbox_workers").fetchall() == [("stopped",)]
        rows = connection.execute("select count(*) from outbox_sample.articles").fetchone()
    assert [process for process in running if process.is_running()] == []
    es.indices.refresh(index=where["index"])
    assert rows is not None
    assert (
        abs(es.count(index=where["index"])["count"] - rows[0]) <= 5
    )  # what changed between the last claim and the end
    assert not Path(where["database_url_file"]).exists()


def test_a_database_with_events_of_its_own_gets_no_sample(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op) values ('article', '1', 'delete')"
        )
        assert SampleProducer(database, "search_documents").prepare() is False
        assert connection.execute("select to_regnamespace('outbox_sample')").fetchone() == (None,)


def processes_of(up: RunningProcess, folder: Path) -> list[psutil.Process]:
    """By descent and by the folder of the stack: a port that was let go may be somebody else's at once."""
    found = set(psutil.Process(up.pid).children(recursive=True))
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or []):
            found.add(process)
    return list(found)


# The archives were made again from those that are unpacked, and so have other digests; everything else is as on a
# machine that was installed a minute ago.
UP = """
import json, runpy, sys
from dataclasses import replace
from pathlib import Path
from outbox.embedded import java, pins, products
digests = json.loads(sys.argv[1])
java.SYSTEM_JAVAS = Path("/nowhere")
def pinned(download, name):
    return replace(download, artifacts=(replace(download.artifacts[0], sha256=digests[name]),))
eight = products.RELEASES["8"]
products.RELEASES["8"] = replace(eight, archive=pinned(eight.archive, "elasticsearch"))
for machine, archive in pins.JAVA_21.items():
    pins.JAVA_21[machine] = pinned(archive, "java")
sys.argv = ["outbox", "up", "--json"]
runpy.run_module("outbox", run_name="__main__")
"""
# A /tmp from which nothing may be run, as on hardened machines, for this process and its children alone.
NOEXEC = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp && exec "$@"', "sh"]


def with_noexec_tmp() -> list[str]:
    """Where the system lets us: as root, and outside of most containers."""
    try:
        subprocess.run([*NOEXEC, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            pytest.fail(f"no /tmp without execution can be mounted here: {error}")
        return []
    return NOEXEC


@pytest.mark.release("a minute and a half; each part of it has a quick test")
@pytest.mark.slow
def test_on_a_bare_machine_it_brings_its_own_servers_and_leaves_none(
    start_process: StartProcess, server_folder: Path
) -> None:
    """A closed checkout, an empty cache, a noexec /tmp, no Java but what it fetches; the whole stack, a search."""
    if java_for_this_machine() is None:
        cannot_show("there is no Java to fetch for this kind of machine: see outbox/embedded/pins.py")
    cache = server_folder / "cache"
    machine = bare_machine(server_folder / "closed", cache)
    argv = [*with_noexec_tmp(), sys.executable, "-c", UP, json.dumps(machine.digests)]
    up = start_process(argv, **machine.env, JAVA_HOME=None, TMPDIR=None)
    where = started(up, 300)
    said = up.output.splitlines()
    assert "no suitable Java on this machine: fetching one" in said
    assert "Elasticsearch 8.14.1 is ready" in said
    assert len(said) <= 20, "progress off a terminal is a handful of lines"
    assert search(where)["hits"]["total"]["value"] > 0
    assert "***" in where["database_url"]
    assert where["database_url"] != Path(where["database_url_file"]).read_text().strip()
    assert "require_auth" not in Path(where["database_url_file"]).read_text(), "psql before 16 refuses it"
    assert http_get(where["metrics_url"] + "/healthz")[0] == 200
    running = processes_of(up, cache)
    assert {"java", "postgres", "python"} <= {process.name().rstrip("0123456789.") for process in running}
    javas = {process.exe() for process in running if process.name() == "java"}
    assert javas == {str(cache / "java-21" / "bin" / "java")}
    up.signal(signal.SIGINT)
    assert up.wait() == 0, up.output
    assert [process for process in running if process.is_running()] == []
