"""A port that is given for a server is still free when the server listens, whoever else asks or connects."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from outbox.embedded import process
from outbox.embedded.process import free_port


def first_of_the_kernel() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def test_no_connection_of_another_program_can_take_it() -> None:
    assert all(free_port() < first_of_the_kernel() for _ in range(100))


def test_two_processes_are_never_given_the_same_one() -> None:
    here = free_port()
    only = (
        f"from outbox.embedded import process as p; p.LOWEST_PORT = {here}; p._first_of_the_kernel = lambda: {here + 1}"
    )
    ask = [sys.executable, "-c", f"{only}\nprint(p.free_port())"]
    assert int(subprocess.check_output(ask, text=True, timeout=60)) != here


def test_one_that_is_listened_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(process, "LOWEST_PORT", port)
        monkeypatch.setattr(process, "_first_of_the_kernel", lambda: port + 1)
        assert free_port() != port


def test_a_kernel_that_keeps_all_ports_for_connections_still_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_first_of_the_kernel", lambda: 1024)
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1]


def test_asking_for_many_keeps_few_files_open() -> None:
    open_files = Path("/proc/self/fd")
    for _ in range(process.PORTS_KEPT):
        free_port()
    before = len(list(open_files.iterdir()))
    for _ in range(200):
        free_port()
    assert len(list(open_files.iterdir())) <= before
