"""The embedded stack and its parent: stopped with it, also after kill -9, and never in the way of the next start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.process import serves_in
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.waiting import eventually

# A parent as small as can be: it starts the stack in the folder given and says where it is.
PARENT = """
import pathlib, signal, sys
from outbox.embedded import EmbeddedStack
folder, elastic_url = sys.argv[1:]
with EmbeddedStack(pathlib.Path(folder), elastic_url=elastic_url or None) as stack:
    print("database", stack.database_url, flush=True)
    print("elastic", stack.elastic_url, flush=True)
    signal.pause()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder of its own; the distribution is shared with all, since fetching it is another test."""
    shared = default_data_dir()
    with temporary_folder(shared) as folder:
        for distribution in shared.glob("elasticsearch-*"):
            (folder / distribution.name).symlink_to(distribution)
        yield folder


class Parent:
    def __init__(self, process: RunningProcess) -> None:
        self.process = process
        self.database_url = process.wait_for_line("database ").split()[1]
        self.elastic_url = process.wait_for_line("elastic ", within=240).split()[1]


def servers_in(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if serves_in(process, folder)]


def start_parent(start_process: StartProcess, data_dir: Path, elastic_url: str = "http://given") -> Parent:
    return Parent(start_process([sys.executable, "-c", PARENT, str(data_dir), elastic_url]))


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.release("it starts servers of its own, most of them twice; two ends of a stack are in the quick run")
@pytest.mark.slow
def test_killing_the_parent_stops_both_servers_and_the_next_start_finds_its_data(
    start_process: StartProcess, data_dir: Path
) -> None:
    first = start_parent(start_process, data_dir, elastic_url="")
    execute(first.database_url, "create table kept as select 42 as n")
    assert {process.name() for process in servers_in(data_dir)} == {"java", "postgres"}
    first.process.kill()
    second = start_parent(start_process, data_dir)
    assert execute(second.database_url, "select n from kept") == [(42,)]
    assert second.process.terminate() != 0
    eventually(lambda: not servers_in(data_dir), what="the end of all servers")


def test_killing_the_parent_ends_the_server_without_any_next_start(start_process: StartProcess, data_dir: Path) -> None:
    parent = start_parent(start_process, data_dir)
    parent.process.kill()
    eventually(lambda: not servers_in(data_dir), what="the end of PostgreSQL")
