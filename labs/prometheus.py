"""Runs a real Prometheus with the shipped rules, faster by a factor. It evaluates no alert itself.

`speed` divides every duration of the rules and every threshold in seconds: at 30 an alert that needs five minutes
fires after ten seconds. Nothing else of a rule changes, so what fires here also fires in production, only later.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outbox.embedded.process import free_port

RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "rules"
JOB = "outbox-projector"  # as in deploy/prometheus/prometheus.yml; OutboxInstanceDown uses it
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"\b(\d+)(ms|s|m|h|d)\b")
_IN_EXPRESSION = re.compile(r"\[\w+\]|\boffset \w+")
_AGE_LIMIT = re.compile(r"(?<=> )\d{3,}$", re.MULTILINE)
# The sampler waits up to 30 s between two samples, at any speed.
LEAST_SAMPLE_AGE_SECONDS = 35.0
START_SECONDS = 60.0
STOP_SECONDS = 10.0


class PrometheusMissing(RuntimeError):
    """The program `prometheus` is not on the PATH. On Debian: apt-get install prometheus"""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as Prometheus shows it: `state` is pending or firing."""

    name: str
    state: str
    labels: dict[str, str]
    annotations: dict[str, str]


def faster(rules: str, speed: float) -> str:
    """The same rules with every duration and every limit of an age divided by `speed`."""
    document = yaml.safe_load(rules)
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _faster_expression(rule["expr"], speed)
            for name in ("for", "keep_firing_for"):
                if name in rule:
                    rule[name] = _shorter(rule[name], speed)
    return yaml.safe_dump(document, sort_keys=False)


def _faster_expression(expression: str, speed: float) -> str:
    quick = _IN_EXPRESSION.sub(lambda found: _shorter(found[0], speed), expression)
    if "_seconds:max" not in quick and "timestamp_seconds" not in quick:
        return quick
    least = LEAST_SAMPLE_AGE_SECONDS if "sample_timestamp" in quick else 0.0
    return _AGE_LIMIT.sub(lambda found: f"{max(least, float(found[0]) / speed):g}", quick)


def _shorter(text: str, speed: float) -> str:
    return _DURATION.sub(lambda d: f"{max(1, round(int(d[1]) * SECONDS[d[2]] * 1000 / speed))}ms", text)


class Prometheus:
    """`with Prometheus(["127.0.0.1:9108"], speed=30) as p:` and then `p.firing()`. Its data is removed at the end."""

    def __init__(self, targets: Sequence[str], speed: float = 1.0, scrape_seconds: float = 15.0) -> None:
        self.targets = list(targets)
        self.speed = speed
        self.interval = f"{max(200, round(scrape_seconds * 1000 / speed))}ms"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        program = shutil.which("prometheus")
        if program is None:
            raise PrometheusMissing(PrometheusMissing.__doc__)
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-prometheus-")))
        try:
            self._start(program, folder)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, program: str, folder: Path) -> None:
        config = self._write_config(folder)
        log = self._stack.enter_context((folder / "log").open("wb"))
        argv = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        self._stack.callback(self._stop, self._process)
        self._wait_until_ready(folder / "log")

    def _write_config(self, folder: Path) -> Path:
        (folder / "rules").mkdir()
        for rules in sorted(RULES.glob("*.yml")):
            (folder / "rules" / rules.name).write_text(faster(rules.read_text(), self.speed))
        scrape = {"job_name": JOB, "static_configs": [{"targets": self.targets}]}
        config = {
            "global": {
                "scrape_interval": self.interval,
                "scrape_timeout": self.interval,
                "evaluation_interval": self.interval,
            },
            "rule_files": [str(folder / "rules" / "*.yml")],
            "scrape_configs": [scrape],
        }
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def _wait_until_ready(self, log: Path) -> None:
        ends = time.monotonic() + START_SECONDS
        while not self._answers("/-/ready"):
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > ends:
                raise RuntimeError(f"Prometheus did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)

    def alerts(self) -> list[Alert]:
        """What is pending or firing now."""
        found = self._get("/api/v1/alerts")["alerts"]
        return [Alert(a["labels"]["alertname"], a["state"], a["labels"], a["annotations"]) for a in found]

    def firing(self) -> set[str]:
        return {alert.name for alert in self.alerts() if alert.state == "firing"}

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value per series."""
        found = self._get("/api/v1/query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def _get(self, path: str, **parameters: str) -> Any:
        asked = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(asked, timeout=10) as reply:
            return json.load(reply)["data"]
