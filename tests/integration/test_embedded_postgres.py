"""An embedded PostgreSQL: starting, ending in every way, ports, and what others leave in its folder."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres
from outbox.embedded.errors import FolderInUse, PortTaken
from tests.fixtures.waiting import eventually


@pytest.fixture
def postgres(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(server_folder / "postgresql", settings={"fsync": "off"}) as running:
        yield running


def one(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    return row and row[0]


def test_it_wants_its_password(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://outbox:wrong@127.0.0.1:{postgres.port}/postgres")


def test_data_and_port_survive_a_restart_and_a_crash(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create table kept as select 42 as n")
    port = postgres.port
    postgres.restart()
    assert one(postgres.url, "select n from kept") == 42
    postgres.kill()
    assert not postgres.running
    postgres.start()
    assert (one(postgres.url, "select n from kept"), postgres.port) == (42, port)


def test_a_port_that_was_asked_for_and_is_taken_is_refused(server_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            EmbeddedPostgres(server_folder / "postgresql", port=port).start()


def test_a_folder_in_use_is_refused(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(FolderInUse, match="OUTBOX_DATA_DIR"):
        EmbeddedPostgres(postgres.folder).start()


def test_a_server_that_lost_its_supervisor_stops_by_itself(postgres: EmbeddedPostgres) -> None:
    assert postgres._process is not None
    left = postgres._process.processes()
    psutil.Process(postgres._process._popen.pid).kill()
    eventually(lambda: all(gone(process) for process in left), what="the end of all servers")


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
