"""Owns what a real Prometheus is asked: the dashboards' queries, the rules; and which alerts were seen to fire."""

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deployed.engine import Engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import DeploymentFailed, await_until
from tests.fixtures.deployment import RULES, dashboards, filled_in, panels, read_yaml

PROMETHEUS = "http://127.0.0.1:9090"
IMAGE = "prom/prometheus:v3.5.0"
MANAGER = "prom/alertmanager:v0.28.1"
RANGE_SECONDS = 1800
STEP_SECONDS = 5
QUICK = "1s"


def asked(url: str, path: str, **query: object) -> Any:
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(query)}", timeout=30) as reply:
        told = json.loads(reply.read())
    if told["status"] != "success":
        raise DeploymentFailed(f"{path} {query}: {told}")
    return told["data"]


def check(without: frozenset[str] | None) -> Figures:
    """Every panel had a series at some time of the run, but these, or any if that is None; every rule is evaluated."""
    bare: list[str] = []
    queries = 0
    for name, board in dashboards().items():
        for panel in panels(board):
            expressions = [filled_in(target["expr"]) for target in panel["targets"]]
            queries += len(expressions)
            if expressions and not any(map(_series, expressions)):
                bare.append(f"{name}: {panel['title']}")
        for note in board["annotations"]["list"]:
            if "expr" in note:
                _series(filled_in(note["expr"]))
                queries += 1
    rules = [rule for group in asked(PROMETHEUS, "/api/v1/rules")["groups"] for rule in group["rules"]]
    wrong = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    strange = set(bare) - without if without is not None else set()
    if wrong or strange:
        raise DeploymentFailed(f"panels without a series: {sorted(strange)}; rules: {wrong}")
    return {"queries": queries, "rules": len(rules), "panels_without_series": sorted(bare)}


def _series(expression: str) -> list[Any]:
    now = time.time()
    span = {"start": now - RANGE_SECONDS, "end": now, "step": STEP_SECONDS}
    found: list[Any] = asked(PROMETHEUS, "/api/v1/query_range", query=expression, **span)["result"]
    return found


# Alerts


class Seen:
    """Which alerts a real Alertmanager held, and which of them it let go again."""

    def __init__(self, engine: Engine, container: str) -> None:
        self.fired: set[str] = set()
        self.active: set[str] = set()
        self._engine = engine
        self._container = container
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def resolved(self) -> set[str]:
        return self.fired - self.active

    def await_fired(self, name: str) -> bool:
        return self._await(lambda: name in self.fired, 60)

    def await_resolved(self, name: str) -> bool:
        return self._await(lambda: name in self.resolved, 120)

    @staticmethod
    def _await(probe: Callable[[], bool], within: float) -> bool:
        try:
            await_until(probe, "an alert", within)
        except DeploymentFailed:
            return False
        return True

    def _watch(self) -> None:
        while not self._stopping.wait(1):
            try:
                self.look()
            except (DeploymentFailed, json.JSONDecodeError):
                continue

    def look(self) -> None:
        url = "http://127.0.0.1:9093/api/v2/alerts?active=true"
        told = json.loads(self._engine.docker("exec", self._container, "wget", "-q", "-O", "-", url, limit=20))
        self.active = {alert["labels"]["alertname"] for alert in told}
        self.fired |= self.active

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)


@contextmanager
def alerting(engine: Engine, project: str, folder: Path) -> Iterator[Seen]:
    """A second Prometheus with the shipped rules, each `for` of them cut to a second, and an Alertmanager."""
    place = folder / "alerting"
    (place / "rules").mkdir(parents=True, exist_ok=True)
    for path in RULES:
        rules = read_yaml(path)
        for group in rules["groups"]:
            group["interval"] = QUICK
            for rule in group["rules"]:
                if "for" in rule:
                    rule["for"] = QUICK
        (place / "rules" / path.name).write_text(yaml.safe_dump(rules))
    (place / "prometheus.yml").write_text(yaml.safe_dump(_configuration()))
    (place / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    common = ("run", "-d", "--network", f"{project}_default", "-v", f"{place}:/etc/quick:ro", "--entrypoint")
    manager = f"{project}-alertmanager"
    prometheus = f"{project}-quick"
    try:
        flags = ["--config.file=/etc/quick/alertmanager.yml", "--storage.path=/tmp", "--cluster.listen-address="]
        engine.docker(*common, "/bin/alertmanager", "--name", manager, MANAGER, *flags)
        flags = ["--config.file=/etc/quick/prometheus.yml", "--storage.tsdb.path=/tmp/data"]
        engine.docker(*common, "/bin/prometheus", "--name", prometheus, IMAGE, *flags)
        seen = Seen(engine, manager)
        await_until(lambda: (seen.look(), True), "Alertmanager answers", 60)
        yield seen
        seen.stop()
    finally:
        engine.docker("rm", "-f", "-v", manager, prometheus, check=False)


def _configuration() -> dict[str, Any]:
    manager = {"static_configs": [{"targets": ["outbox-deployed-alertmanager:9093"]}]}
    by_name = [{"names": ["projector"], "type": "A", "port": 9108, "refresh_interval": "1s"}]
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "alerting": {"alertmanagers": [manager]},
        "rule_files": ["/etc/quick/rules/*.yml"],
        "scrape_configs": [
            {"job_name": "outbox-projector", "dns_sd_configs": by_name},
            {"job_name": "outbox-console", "static_configs": [{"targets": ["console:8090"]}]},
        ],
    }
