"""Nobody switches the console off for others: unread exports, silent connections, bodies that never end, a flood."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from outbox.web import console_server, routing
from tests.fixtures.console import ACT, Served, post
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

EXPORT = "/api/v1/audit/export?format=ndjson"
Open = Callable[..., socket.socket]


@pytest.fixture
def open_socket(console: Served) -> Iterator[Open]:
    """`open_socket(text, source)`: a connection that has sent this text, and nothing more."""
    port = int(console.url.rpartition(":")[2])
    with ExitStack() as stack:

        def start(text: str = "", source: str = "127.0.0.1") -> socket.socket:
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what it does not read stays with the server
            made.settimeout(PATIENCE_SECONDS)
            made.bind((source, 0))
            made.connect(("127.0.0.1", port))
            made.sendall(text.encode())
            return made

        yield start


@pytest.fixture
def long_audit(connection: psycopg.Connection) -> None:
    """16 MB: more than the buffers between a server and a client that does not read."""
    connection.execute(
        "insert into search_outbox_audit (action, actor, source, detail)"
        " select 'PAUSED', 'alice', 'cli', to_json(repeat('x', 160000)) from generate_series(1, 100)"
    )


def unread(open_socket: Open) -> socket.socket:
    made = open_socket(f"GET {EXPORT} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert made.recv(15) == b"HTTP/1.1 200 OK"
    return made


@pytest.mark.usefixtures("long_audit")
def test_unread_exports_leave_acts_and_other_exports_alone(
    console: Served, open_socket: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_server, "MOST_EXPORTS_OF_A_PEER", 6, raising=False)
    for _ in range(5):
        unread(open_socket)
    assert post(console.client, "/pause", ACT).status_code == 200
    assert console.client.get(f"{EXPORT}&actor=nobody").status_code == 200


@pytest.mark.usefixtures("long_audit")
@pytest.mark.parametrize("ends", ["the client leaves", "the client never reads"])
def test_an_export_that_nobody_reads_ends(
    console: Served, open_socket: Open, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    if ends == "the client never reads":
        monkeypatch.setattr(console_server, "WRITE_SECONDS", 0.5)
    made = [unread(open_socket) for _ in range(console_server.MOST_EXPORTS_OF_A_PEER)]
    client = console.client
    if ends == "the client leaves":
        assert client.get(f"{EXPORT}&actor=nobody").status_code == 429
        for each in made:
            each.close()
    eventually(lambda: client.get(f"{EXPORT}&actor=nobody").status_code == 200, what="room for an export")


@pytest.mark.parametrize("text", ["", "GET /healthz HTTP/1.1\r\nx: "])
def test_silent_connections_keep_nobody_out(console: Served, open_socket: Open, text: str) -> None:
    for number in range(205):
        open_socket(text, f"127.0.0.{number % 2 + 1}")
    client = console.client
    for path in ("/healthz", "/api/v1/ops", "/ops/queue"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(("limit", "status"), [("MOST_REQUESTS", 503), ("MOST_OF_A_PEER", 429)])
def test_a_crowd_is_asked_to_come_back_and_health_is_answered(
    console: Served, monkeypatch: pytest.MonkeyPatch, limit: str, status: int
) -> None:
    monkeypatch.setattr(console_server, limit, 0)
    client = console.client
    refused = client.get("/api/v1/ops")
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) > 0
    assert client.get("/ops/queue").status_code == status
    assert client.get("/healthz").status_code == 200


def test_a_body_has_a_deadline(open_socket: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MOST_SECONDS", 0.3)
    head = "POST /api/v1/pause HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n"
    assert open_socket(f'{head}\r\n{{"by"').recv(12) == b"HTTP/1.1 408"
