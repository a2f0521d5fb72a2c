"""An embedded PostgreSQL: starting, ending in every way, ports, and what others leave in its folder."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres, server
from outbox.embedded.errors import EmbeddedServerFailed, FolderInUse, PortTaken
from tests.fixtures.processes import find_free_port
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def postgres(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(server_folder / "postgresql", settings={"fsync": "off"}) as running:
        yield running


def one(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    return row and row[0]


def test_it_is_version_18_and_listens_on_loopback_only(postgres: EmbeddedPostgres) -> None:
    assert str(one(postgres.url, "show server_version")).startswith("18.")
    assert one(postgres.url, "show listen_addresses") == "127.0.0.1"


def test_it_wants_its_password(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://outbox:wrong@127.0.0.1:{postgres.port}/postgres")


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_connection_hashes_its_random_password_once(postgres: EmbeddedPostgres) -> None:
    stored = one(postgres.url, "select rolpassword from pg_authid where rolname = 'outbox'")
    assert str(stored).startswith("SCRAM-SHA-256$1:")


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


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_stop_does_not_wait_for_clients(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_frozen_server_keeps_connections_and_answers_nothing_until_it_is_thawed(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.freeze()
        answered = threading.Event()
        asking = threading.Thread(target=lambda: (connection.execute("select 1"), answered.set()))
        asking.start()
        assert not answered.wait(0.3)
        postgres.thaw()
        assert answered.wait(PATIENCE_SECONDS)
        asking.join()


def test_a_port_that_was_asked_for_and_is_taken_is_refused(server_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            EmbeddedPostgres(server_folder / "postgresql", port=port).start()


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_port_lost_to_another_process_between_choosing_and_binding_is_replaced(
    server_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lost, free = taken.getsockname()[1], find_free_port()
        choices = iter([lost, free])
        monkeypatch.setattr(server, "free_port", lambda: next(choices))
        with EmbeddedPostgres(server_folder / "postgresql") as running:
            assert running.port == free


def test_a_folder_in_use_is_refused(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(FolderInUse, match="OUTBOX_DATA_DIR"):
        EmbeddedPostgres(postgres.folder).start()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(server_folder: Path) -> None:
    with pytest.raises(EmbeddedServerFailed, match="unrecognized configuration parameter"):
        EmbeddedPostgres(server_folder / "postgresql", settings={"no_such_setting": "1"}).start()


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_pid_file_of_a_process_that_is_not_postgres_is_no_obstacle(postgres: EmbeddedPostgres) -> None:
    postgres.stop()
    init_process = 1
    (postgres.folder / "data" / "postmaster.pid").write_text(f"{init_process}\n{postgres.folder / 'data'}\n")
    postgres.start()
    assert psutil.pid_exists(init_process)


@pytest.mark.release("a start of its own; embedded servers are for trials and tests")
def test_a_bystander_in_the_folder_is_left_alone(postgres: EmbeddedPostgres) -> None:
    postgres.stop()
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()", str(postgres.folder / "data")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd=postgres.folder) as bystander:
        postgres.start()
        assert bystander.poll() is None
        assert bystander.stdin is not None
        bystander.stdin.close()


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
