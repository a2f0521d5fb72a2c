"""The daemon's pages over real sockets: what they answer, whom they refuse, and that slow clients starve nobody."""

import http.client
import socket
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import get_type_hints
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from outbox import facts
from outbox.telemetry.health import Health, ReadyRules
from outbox.telemetry.metrics import Metrics, new_registry
from outbox.web import health as health_pages
from outbox.web.health import MOST_CONNECTIONS, PageServer


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


def test_silent_clients_starve_no_probe(daemon: Daemon) -> None:
    silent = [socket.create_connection(("127.0.0.1", daemon.port), timeout=5) for _ in range(4 * MOST_CONNECTIONS)]
    try:
        for _ in range(5):
            assert daemon.ask("/healthz").status == 200
    finally:
        for client in silent:
            client.close()
