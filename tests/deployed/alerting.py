"""Owns how alerts are seen to fire and to end: the shipped rules in a quick Prometheus, with a real Alertmanager."""

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deployed import altering, monitoring
from tests.deployed.engine import Engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import DeploymentFailed, await_until, say
from tests.fixtures.deployment import RULES, alerts, read_yaml

# Every duration of the rules (`for`, windows, offsets) is divided by it; a threshold in seconds is not.
FACTOR = 60
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])")
WITHIN = 150.0
REAL, ALTERED = "real", "altered"


def quick(rules: Any) -> Any:
    """The same rules, in a time that runs faster."""
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = DURATION.sub(lambda m: _shorter(m[1] or m[3], m[2] or m[4]), rule["expr"])
            for name in ("for", "keep_firing_for"):
                if found := re.fullmatch(r"(\d+)([smhd])", rule.get(name, "")):
                    rule[name] = _shorter(*found.groups())
    return rules


def _shorter(count: str, unit: str) -> str:
    return f"{int(count) * SECONDS[unit] * 1000 // FACTOR}ms"


def key(name: str, labels: dict[str, str]) -> str:
    """Some alerts have several rules, which differ in these."""
    several = [alert for alert in alerts() if alert["alert"] == name]
    return " ".join([name, *([labels["severity"], labels.get("window", "")] if len(several) > 1 else [])]).strip()


def all_keys() -> set[str]:
    return {key(alert["alert"], alert["labels"]) for alert in alerts()}


@dataclass(frozen=True, slots=True)
class Provocation:
    """What makes these fire, and what ends them. Each with how: real where a daemon is in that state."""

    keys: Mapping[str, str]
    act: Callable[[], object]
    undo: Callable[[], object] = lambda: None
    within: float = WITHIN


class Seen:
    """Which alerts a real Alertmanager holds."""

    def __init__(self, url: str, place: Path) -> None:
        self.active: frozenset[str] = frozenset()
        self.fired: set[str] = set()
        self._url = url
        self._file = place / "altered.json"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def play(self, steps: list[Provocation]) -> Figures:
        """For each alert how it was made to fire, and the seconds until it fired and until it ended."""
        return {name: found for step in steps for name, found in self._play(step).items()}

    def _play(self, step: Provocation) -> Figures:
        """What fails here is kept as these alerts' figure: the others are tried all the same."""
        figures: Figures = {name: {"how": how} for name, how in step.keys.items()}
        self.fired = set(self.active)
        self._await(step, step.act, figures, "fired_seconds", lambda name: name in self.fired)
        self._await(step, step.undo, figures, "ended_seconds", lambda name: name not in self.active)
        say(f"   {figures}")
        return figures

    @staticmethod
    def _await(
        step: Provocation, act: Callable[[], object], figures: Figures, word: str, probe: Callable[[str], bool]
    ) -> None:
        began = time.monotonic()
        open_ = set(step.keys)
        try:
            act()
        except Exception as failed:  # any: of a command, of PostgreSQL, of the search server
            for name in step.keys:
                figures[name]["error"] = f"{type(failed).__name__}: {failed}"[-300:]

        def one_more() -> bool:
            for name in [name for name in open_ if probe(name)]:
                figures[name][word] = round(time.monotonic() - began, 1)
                open_.discard(name)
            return not open_

        with suppress(DeploymentFailed):
            await_until(one_more, "alerts", step.within)

    def alter(self, *alterations: dict[str, Any]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps([{**each, "since": time.time()} for each in alterations]))
        new.rename(self._file)

    def _watch(self) -> None:
        while not self._stopping.wait(0.5):
            try:
                self.look()
            except (OSError, json.JSONDecodeError):
                continue

    def look(self) -> None:
        with urllib.request.urlopen(f"{self._url}/api/v2/alerts?active=true", timeout=10) as reply:
            told = json.loads(reply.read())
        self.active = frozenset(key(alert["labels"]["alertname"], alert["labels"]) for alert in told)
        self.fired |= self.active

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)


def judged(figures: Figures) -> list[str]:
    """What did not fire, or did not end."""
    words = ("fired_seconds", "ended_seconds")
    return [
        f"{name}: no {word}{': ' if 'error' in found else ''}{found.get('error', '')}"
        for name, found in figures.items()
        for word in words
        if word not in found
    ]


@contextmanager
def alerting(engine: Engine, project: str, image: str) -> Iterator[Seen]:
    """A second Prometheus with the quick rules, a page between it and the projector, and an Alertmanager."""
    place = engine.folder / "alerting"
    (place / "rules").mkdir(parents=True, exist_ok=True)
    for path in RULES:
        (place / "rules" / path.name).write_text(yaml.safe_dump(quick(read_yaml(path))))
    (place / "prometheus.yml").write_text(yaml.safe_dump(_configuration(project)))
    (place / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    (place / "altering.py").write_text(Path(altering.__file__).read_text())
    (place / "altered.json").write_text("[]")
    common = ("run", "-d", "--network", f"{project}_default", "-v", f"{place}:/etc/quick:ro", "--entrypoint")
    manager, prometheus, page = (f"{project}-{name}" for name in ("alertmanager", "quick", "page"))
    try:
        flags = ["/etc/quick/altering.py", f"http://projector:{altering.PORT}/metrics", "/etc/quick/altered.json"]
        engine.docker(*common, "python", "--name", page, image, *flags)
        flags = ["--config.file=/etc/quick/alertmanager.yml", "--storage.path=/tmp", "--cluster.listen-address="]
        port = ("-p", "127.0.0.1::9093")
        engine.docker(*common, "/bin/alertmanager", "--name", manager, *port, monitoring.MANAGER, *flags)
        flags = ["--config.file=/etc/quick/prometheus.yml", "--storage.tsdb.path=/tmp/data"]
        engine.docker(*common, "/bin/prometheus", "--name", prometheus, monitoring.IMAGE, *flags)
        seen = Seen(f"http://{engine.docker('port', manager, '9093/tcp').split()[0]}", place)
        await_until(lambda: (seen.look(), True), "Alertmanager answers", 60)
        yield seen
        seen.stop()
    finally:
        engine.docker("rm", "-f", "-v", manager, prometheus, page, check=False)


def _configuration(project: str) -> dict[str, Any]:
    targets = {"outbox-projector": f"{project}-page:{altering.PORT}", "outbox-console": "console:8090"}
    manager = {"static_configs": [{"targets": [f"{project}-alertmanager:9093"]}]}
    return {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"},
        "alerting": {"alertmanagers": [manager]},
        "rule_files": ["/etc/quick/rules/*.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
