"""The labs' TCP proxy does to real sockets what it says."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from labs.link import RESET
from labs.proxy import Proxy
from tests.fixtures.waiting import eventually


class Echo:
    """A server that answers every line with the same line, and remembers all it got."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while line := client.recv(1000):
                self.seen.append(line)
                client.sendall(line)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo.port) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def ask(connection: socket.socket, line: bytes = b"hello") -> bytes:
    connection.sendall(line)
    return connection.recv(1000)


def is_broken(connection: socket.socket) -> bool:
    try:
        return ask(connection) == b""
    except OSError:
        return True


def test_a_cut_resets_and_refuses_and_heals_on_the_same_port(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection)
        proxy.cut()
        assert is_broken(connection)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as connection:
        assert ask(connection) == b"hello"


def test_a_stalled_link_is_open_and_silent_until_it_is_healed(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection)
        proxy.stall()
        connection.settimeout(0.2)
        connection.sendall(b"later")
        with pytest.raises(TimeoutError):
            connection.recv(1000)
        proxy.heal()
        connection.settimeout(5)
        assert connection.recv(1000) == b"later"


def test_a_lost_reply_was_applied_by_the_server(proxy: Proxy, echo: Echo) -> None:
    proxy.lose_replies(b"_bulk")
    with connect(proxy) as connection:
        assert ask(connection, b"GET /") == b"GET /"
        with pytest.raises(ConnectionResetError):
            ask(connection, b"PUT /x/_bulk")
    assert b"PUT /x/_bulk" in echo.seen
    assert proxy.counts["replies_lost"] == 1


def test_a_body_over_the_limit_is_refused_as_a_gateway_would(proxy: Proxy, echo: Echo) -> None:
    proxy.refuse_bodies_over(100)
    with connect(proxy) as connection:
        assert b" 413 " in ask(connection, b"PUT /x/_bulk HTTP/1.1\r\ncontent-length: 101\r\n\r\n")
    assert echo.seen == []


def test_a_held_request_arrives_although_its_sender_is_gone(proxy: Proxy, echo: Echo) -> None:
    proxy.hold(b"_bulk")
    with connect(proxy) as connection:
        connection.sendall(b"PUT /x/_bulk")
        eventually(lambda: proxy.counts["held"] == 1)
    proxy.let_pass()
    with connect(proxy) as connection:
        assert ask(connection, b"GET /") == b"GET /"
    assert echo.seen == [b"GET /"]
    proxy.release()
    eventually(lambda: echo.seen == [b"GET /", b"PUT /x/_bulk"])


def test_a_reset_by_the_server_reaches_a_client_that_waits_for_an_answer() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy("127.0.0.1", server.getsockname()[1]) as proxy,
        connect(proxy) as client,
    ):
        client.sendall(b"hello")
        inside, _ = server.accept()
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        inside.close()  # with what it was sent unread: RST
        with pytest.raises(ConnectionResetError):
            client.recv(100)
