"""systemd's notify protocol over real datagram sockets: a path, an abstract one, none, and one that is gone."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from outbox.daemon.systemd import Notifier, Watchdog
from tests.fixtures.waiting import PATIENCE_SECONDS


class Systemd:
    """The receiving end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self, within: float = PATIENCE_SECONDS) -> list[str]:
        self._socket.settimeout(within)
        return self._socket.recv(4096).decode().split("\n")

    def silent(self, for_seconds: float) -> bool:
        try:
            self.heard(for_seconds)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    listening = Systemd(str(tmp_path / "notify") if request.param == "path" else f"@outbox-test-{uuid4().hex}")
    yield listening
    listening.close()


def test_ready_stopping_and_status_arrive(systemd: Systemd) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address})
    notifier.ready("projecting to articles")
    assert systemd.heard() == ["READY=1", "STATUS=projecting to articles"]
    notifier.status("lag 3\nREADY=0")
    assert systemd.heard() == ["STATUS=lag 3 READY=0"]
    notifier.stopping()
    assert systemd.heard() == ["STOPPING=1"]


def test_without_a_socket_nothing_happens() -> None:
    notifier = Notifier({})
    notifier.ready("projecting")
    notifier.stopping()
    assert notifier.watchdog_seconds == 0


def test_the_watchdog_is_fed_only_while_there_is_progress(systemd: Systemd) -> None:
    environ = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": str(os.getpid())}
    progress, line = [True], ["waiting for PostgreSQL"]
    watchdog = Watchdog(Notifier(environ), lambda: progress[0], lambda: line[0])
    watchdog.start()
    try:
        assert systemd.heard() == ["READY=1", "STATUS=waiting for PostgreSQL"]
        assert [systemd.heard(), systemd.heard(), systemd.heard()] == [["WATCHDOG=1"]] * 3
        line[0] = "projecting"
        said = [systemd.heard() for _ in range(6)]
        assert said.count(["STATUS=projecting"]) == 1, "only what has changed is said"
        progress[0] = False
        assert any(systemd.silent(0.3) for _ in range(5)), "what was sent before may still be on its way, no more"
        progress[0] = True
        assert systemd.heard() == ["WATCHDOG=1"]
    finally:
        watchdog.stop()
    assert systemd.silent(0.3)
