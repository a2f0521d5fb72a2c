"""A port that is given for a server is still free when the server listens, whoever else asks or connects."""

import subprocess
import sys
from pathlib import Path

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
