"""The embedded stack and its parent: stopped with it, also after kill -9."""

import sys

import psutil

from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.process import serves_in
from tests.fixtures.processes import StartProcess
from tests.fixtures.waiting import eventually

# A parent as small as can be: it starts the stack in the folder given and says that it runs.
PARENT = """
import pathlib, signal, sys
from outbox.embedded import EmbeddedStack
with EmbeddedStack(pathlib.Path(sys.argv[1]), elastic_url="http://given"):
    print("started", flush=True)
    signal.pause()
"""


def test_killing_the_parent_ends_the_server_without_any_next_start(start_process: StartProcess) -> None:
    with temporary_folder(default_data_dir()) as folder:

        def servers() -> list[psutil.Process]:
            return [process for process in psutil.process_iter() if serves_in(process, folder)]

        parent = start_process([sys.executable, "-c", PARENT, str(folder)])
        parent.wait_for_line("started")
        assert servers()
        parent.kill()
        eventually(lambda: not servers(), what="the end of PostgreSQL")
