"""Commands on a terminal, which is a real pseudo-terminal here: questions, colours, a picture that is drawn again."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.fixtures.commands import call
from tests.fixtures.processes import ROOT, clean_environment
from tests.fixtures.queue import EventTable
from tests.fixtures.waiting import PATIENCE_SECONDS


class Terminal:
    """A command with a terminal as its stdin, stdout and stderr."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: int) -> None:
        self.process = process
        self.end = end
        self.seen = ""

    def read_until(self, part: str, within: float = PATIENCE_SECONDS) -> str:
        deadline = time.monotonic() + within
        while part not in self.seen:
            assert time.monotonic() < deadline, f"{part!r} not seen in {self.seen!r}"
            if not self._more():
                break
        assert part in self.seen, self.seen
        return self.seen

    def read_to_end(self, within: float = PATIENCE_SECONDS) -> str:
        deadline = time.monotonic() + within
        while self._more() and time.monotonic() < deadline:
            pass
        self.process.wait(within)
        return self.seen

    def _more(self) -> bool:
        ready, _, _ = select.select([self.end], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            read = os.read(self.end, 65536)
        except OSError:  # Linux says so when the last process has left the terminal
            return False
        self.seen += read.decode(errors="replace")
        return bool(read)

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())


@contextmanager
def terminal(*args: str, **env: str | None) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "outbox", *args],
        cwd=ROOT,
        env=clean_environment({"TERM": "xterm-256color", "COLUMNS": "160", "NO_COLOR": None, **env}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_SECONDS)
        os.close(ours)


def test_a_command_that_takes_something_away_asks_first(queue: EventTable, servers: dict[str, str | None]) -> None:
    queue.connection.execute("create table things (id int primary key)")
    triggers = "select count(*) from pg_trigger where starts_with(tgname, 'search_outbox_capture')"
    attached = call("attach", "things", "--type", "thing", "--id", "id", "--per-row", env=servers)
    assert (attached.code, queue.value(triggers)) == (0, 1), attached
    for typed, code, left in (("n\n", 1, 1), ("y\n", 0, 0)):
        with terminal("detach", "things", **servers) as asking:
            asking.read_until("Stop projecting the changes of things?")
            asking.type(typed)
            asking.read_to_end()
            assert (asking.process.returncode, queue.value(triggers)) == (code, left)


def test_watching_draws_one_picture_again_and_ctrl_c_leaves_it(
    servers: dict[str, str | None], connection: psycopg.Connection
) -> None:
    with terminal("status", "--watch", **servers) as watching:
        watching.read_until("Caught up: nothing waits")
        connection.execute("insert into search_outbox_events (entity_type, entity_id, op) values ('a', '1', 'delete')")
        watching.read_until("No projector runs: 1 open")
        watching.process.send_signal(signal.SIGINT)
        watching.read_to_end()
        assert watching.process.returncode == 130
        assert "Traceback" not in watching.seen
