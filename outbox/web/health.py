"""Serves the daemon's three pages, /metrics, /healthz and /readyz, on its own port; judges nothing (see telemetry)."""

from collections.abc import Callable, Mapping
from typing import Final

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from outbox.telemetry.health import Health
from outbox.web.server import Page, PageServer

JSON: Final = "application/json"


def start(
    host: str,
    metrics_port: int,
    http_port: int | None,
    registry: CollectorRegistry,
    health: Health,
) -> list[PageServer]:
    """One server a port; 0 is off. A port that cannot be opened raises CannotListen before anything is claimed."""
    probes: dict[str, Callable[[str], Page]] = {
        "/healthz": lambda _: healthz(health),
        "/readyz": lambda _: readyz(health),
    }
    wanted: dict[int, Mapping[str, Callable[[str], Page]]] = {}
    if http_port:
        wanted[http_port] = probes
    if metrics_port:
        wanted[metrics_port] = {**probes, "/metrics": lambda accept: metrics(registry, accept)}
    servers: list[PageServer] = []
    try:
        for port, pages in wanted.items():
            servers.append(PageServer(host, port, pages))
    except BaseException:
        stop(servers)
        raise
    return servers


def stop(servers: list[PageServer]) -> None:
    for server in servers:
        server.close()


def metrics(registry: CollectorRegistry, accept: str) -> Page:
    encode, content_type = choose_encoder(accept)
    return Page(200, content_type, encode(registry))


def healthz(health: Health) -> Page:
    alive = health.alive()
    body = {"status": "ok" if alive else "stalled", "loops": health.beats.report()}
    return Page(200 if alive else 503, JSON, orjson.dumps(body) + b"\n")


def readyz(health: Health) -> Page:
    readiness = health.readiness()
    body = orjson.dumps(readiness.as_json(), option=orjson.OPT_INDENT_2) + b"\n"
    return Page(503 if readiness.status == "not_ready" else 200, JSON, body)
