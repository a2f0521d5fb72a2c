"""Owns what a real Prometheus is asked: the dashboards' queries and the rules."""

import json
import time
import urllib.parse
import urllib.request
from typing import Any

from tests.deployed.scenario import Figures
from tests.deployed.shell import DeploymentFailed
from tests.fixtures.deployment import dashboards, filled_in, panels

PROMETHEUS = "http://127.0.0.1:9090"
IMAGE = "prom/prometheus:v3.5.0"
MANAGER = "prom/alertmanager:v0.28.1"
RANGE_SECONDS = 1800
STEP_SECONDS = 5


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
