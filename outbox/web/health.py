"""Serves the daemon's three pages, /metrics, /healthz and /readyz, on its own port; judges nothing (see telemetry)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import orjson

from outbox.telemetry.beats import Beats
from outbox.telemetry.debounce import ReadyCheck
from outbox.web.server import TEXT, Page, PageServer

# A probe is answered before these are imported: 0.04 s of CPU, beside 0.24 s until the pages listen.
if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from outbox.telemetry.health import Health

JSON: Final = "application/json"


@dataclass(slots=True)
class Shown:
    """What the pages show: at first only that a daemon starts, and everything from `complete` on."""

    beats: Beats
    health: "Health | None" = None
    registry: "CollectorRegistry | None" = None
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def complete(self, registry: "CollectorRegistry", health: "Health") -> None:
        self.registry, self.health = registry, health


def start(host: str, metrics_port: int, http_port: int | None, shown: Shown) -> list[PageServer]:
    """One server a port; 0 is off. A port that cannot be opened raises CannotListen before anything is claimed."""
    probes: dict[str, Callable[[str], Page]] = {
        "/healthz": lambda _: healthz(shown),
        "/readyz": lambda _: readyz(shown),
    }
    wanted: dict[int, Mapping[str, Callable[[str], Page]]] = {}
    if http_port:
        wanted[http_port] = probes
    if metrics_port:
        wanted[metrics_port] = {**probes, "/metrics": lambda accept: metrics(shown, accept)}
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


def metrics(shown: Shown, accept: str) -> Page:
    if shown.registry is None:
        return Page(503, TEXT, b"503 The daemon is starting\n")
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  (who made the registry has imported it)

    encode, content_type = choose_encoder(accept)
    return Page(200, content_type, encode(shown.registry))


def healthz(shown: Shown) -> Page:
    alive = shown.health.alive() if shown.health else shown.beats.alive()
    body = {"status": "ok" if alive else "stalled", "loops": shown.beats.report()}
    return Page(200 if alive else 503, JSON, orjson.dumps(body) + b"\n")


def readyz(shown: Shown) -> Page:
    if shown.health is None:
        starting = ReadyCheck(False, shown.since, "starting: loading modules, not connected yet")
        body = {"status": "not_ready", "checks": {"start": starting.as_json()}}
    else:
        body = shown.health.readiness().as_json()
    return Page(
        503 if body["status"] == "not_ready" else 200, JSON, orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n"
    )
