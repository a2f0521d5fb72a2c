"""The daemon's pages over real sockets: what they answer, whom they refuse, and that slow clients starve nobody."""

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import get_type_hints
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from outbox import facts
from outbox.errors import CannotListen
from outbox.telemetry.beats import Beats
from outbox.telemetry.health import Health, ReadyRules
from outbox.telemetry.metrics import Metrics, new_registry
from outbox.web import health as health_pages
from outbox.web.health import MOST_CONNECTIONS, HealthPage, PageServer
from tests.fixtures.processes import http_get
from tests.fixtures.waiting import eventually


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server checks twice a second whether it is to end: half a second of each test."""
    often = partialmethod(PageServer.serve_forever, poll_interval=0.02)
    monkeypatch.setattr(PageServer, "serve_forever", often)


def shown(registry: CollectorRegistry | None = None, health: Health | None = None) -> health_pages.HealthState:
    health = health or Health()
    return health_pages.HealthState(health.beats, health, registry or new_registry())


class Daemon:
    """The pages of a daemon that is nothing but its telemetry."""

    def __init__(self, port: int, http_port: int | None = None, rules: ReadyRules | None = None) -> None:
        self.port = port
        registry = new_registry()
        self.metrics = Metrics("proj", registry)
        self.health = Health(rules)
        self.servers = health_pages.start("127.0.0.1", port, http_port, shown(registry, self.health))

    def ask(self, path: str, method: str = "GET", port: int | None = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=5)
        connection.request(method, path, headers=headers)
        return connection.getresponse()

    def tell(self, *announced: facts.Fact) -> None:
        for fact in announced:
            self.health.handle(fact)
            self.metrics.handle(fact)


@pytest.fixture
def daemon(free_port: Callable[[], int]) -> Iterator[Daemon]:
    running = Daemon(free_port())
    yield running
    health_pages.stop(running.servers)


def sampled() -> facts.BacklogSampled:
    return facts.BacklogSampled(3, 1.0, 0, 0, 0, {}, {}, False, 0.01)


ABOUT_PEOPLE = [kind for kind in facts.Fact.__subclasses__() if "by" in get_type_hints(kind)]


def about_people(kind: type) -> facts.Fact:
    """A fact of this kind by someone, for a reason."""
    known = {"by": "canary-person", "reason": "canary-reason"}
    plain = {"str": "x", "UUID": uuid4(), "UUID | None": None, "int": 1, "float": 1.0}
    hints = {
        name: getattr(hint, "__name__", str(hint)) for name, hint in get_type_hints(kind).items() if name != "line"
    }
    hints = {name: hint.replace("uuid.", "") for name, hint in hints.items()}
    made: facts.Fact = kind(**{name: known.get(name) or plain[hint] for name, hint in hints.items()})
    return made


@pytest.mark.parametrize("kind", ABOUT_PEOPLE, ids=lambda kind: str(kind.__name__))
def test_no_page_of_the_daemon_tells_who_did_something_or_why(daemon: Daemon, kind: type) -> None:
    """They have no login. `outbox status` says it to people."""
    daemon.tell(facts.SchemaChecked(True, "10"), sampled(), about_people(kind))
    for path in ("/metrics", "/healthz", "/readyz"):
        assert b"canary" not in daemon.ask(path).read(), path


def test_a_daemon_that_starts_is_alive_and_not_ready_and_says_why(free_port: Callable[[], int]) -> None:
    starting = health_pages.HealthState(Beats())
    starting.beats.beat("start")
    port = free_port()
    servers = health_pages.start("127.0.0.1", port, None, starting)
    try:
        code, body = http_get(f"http://127.0.0.1:{port}/healthz")
        assert (code, json.loads(body)["status"]) == (200, "ok")
        assert json.loads(body)["loops"]["start"]["ok"] is True
        code, body = http_get(f"http://127.0.0.1:{port}/readyz")
        assert (code, json.loads(body)["status"]) == (503, "not_ready")
        assert "starting" in json.loads(body)["checks"]["start"]["detail"]
        assert http_get(f"http://127.0.0.1:{port}/metrics")[0] == 503

        starting.complete(new_registry(), Health(beats=starting.beats))
        assert http_get(f"http://127.0.0.1:{port}/metrics")[0] == 200
        assert "database" in json.loads(http_get(f"http://127.0.0.1:{port}/readyz")[1])["checks"]
    finally:
        health_pages.stop(servers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/..%2fetc/passwd", 404),
        ("GET", "/healthz?verbose=1", 200),
        ("HEAD", "/metrics", 200),
        ("HEAD", "/nothing", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/healthz", 405),
        ("DELETE", "/readyz", 405),
        ("OPTIONS", "/metrics", 405),
    ],
)
def test_only_the_three_pages_can_be_read(daemon: Daemon, method: str, path: str, status: int) -> None:
    answer = daemon.ask(path, method)
    assert answer.status == status
    body = answer.read()
    assert bool(body) is (method != "HEAD")
    if status == 405:
        assert answer.headers["Allow"] == "GET, HEAD"


def test_the_second_port_serves_the_health_pages_only(free_port: Callable[[], int]) -> None:
    second = free_port()
    running = Daemon(free_port(), second)
    try:
        assert running.ask("/healthz", port=second).status == 200
        assert running.ask("/readyz", port=second).status == 503
        assert running.ask("/metrics", port=second).status == 404
        assert running.ask("/metrics").status == 200
    finally:
        health_pages.stop(running.servers)


def test_a_taken_port_is_a_clear_error_and_frees_the_other_one(daemon: Daemon, free_port: Callable[[], int]) -> None:
    other = free_port()
    with pytest.raises(CannotListen, match=f"OUTBOX_METRICS_PORT.*127.0.0.1:{daemon.port}") as caught:
        health_pages.start("127.0.0.1", daemon.port, other, shown())
    assert caught.value.exit_code == 78
    health_pages.stop(health_pages.start("127.0.0.1", other, None, shown()))


def test_silent_clients_starve_no_probe(daemon: Daemon) -> None:
    silent = [socket.create_connection(("127.0.0.1", daemon.port), timeout=5) for _ in range(4 * MOST_CONNECTIONS)]
    try:
        for _ in range(5):
            assert daemon.ask("/healthz").status == 200
    finally:
        for client in silent:
            client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_ended(
    free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.web.health.WHOLE_SECONDS", 0.2)
    running = Daemon(free_port())
    try:
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\n")
            slow.settimeout(0.05)

            def ended() -> bool:
                try:
                    slow.sendall(b"X-A: b\r\n")
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            eventually(ended, what="the end of a slow client")
    finally:
        health_pages.stop(running.servers)


def test_a_page_that_cannot_be_made_is_500_without_the_reason(free_port: Callable[[], int]) -> None:
    def broken(_: str) -> HealthPage:
        raise RuntimeError("canary")

    port = free_port()
    server = PageServer("127.0.0.1", port, {"/x": broken})
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/x")
        answer = connection.getresponse()
        assert answer.status == 500
        assert b"canary" not in answer.read()
    finally:
        server.close()
