"""Records which of the shipped alerts a lab raises, in a real Prometheus with a faster clock, if one is installed."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labs.prometheus import RULES, Prometheus

CHECK_SECONDS = 0.5
SPEED = 60.0  # an alert that needs five minutes fires after five seconds


@dataclass
class AlertWatch:
    """`spans` holds, for each alert, when it was pending and when it fired: [from, to, state] in seconds of the lab."""

    ports: Sequence[int]
    now: Callable[[], float]
    wanted: bool = True
    spans: dict[str, list[list[Any]]] = field(default_factory=dict)
    why_not: str = ""
    _prometheus: Prometheus | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self.why_not = _unavailable() if self.wanted else "switched off (--no-alerts)"
        if self.why_not:
            return
        targets = [f"127.0.0.1:{port}" for port in self.ports]
        self._prometheus = Prometheus(targets, speed=SPEED, scrape_seconds=30.0).__enter__()
        self._thread = threading.Thread(target=self._follow, name="alerts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """A second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
        prometheus, self._prometheus = self._prometheus, None
        if prometheus is not None:
            prometheus.__exit__(None, None, None)

    def _follow(self) -> None:
        while not self._stop.wait(CHECK_SECONDS):
            with contextlib.suppress(OSError, ValueError, KeyError):
                self.sample()

    def sample(self) -> None:
        assert self._prometheus is not None
        at = round(self.now(), 2)
        states = {alert.name: alert.state for alert in self._prometheus.alerts()}
        states |= dict.fromkeys(self._prometheus.firing(), "firing")
        for name, state in states.items():
            self._extend(self.spans.setdefault(name, []), at, state)

    @staticmethod
    def _extend(spans: list[list[Any]], at: float, state: str) -> None:
        if spans and spans[-1][2] == state and at - spans[-1][1] < CHECK_SECONDS * 3:
            spans[-1][1] = at
        else:
            spans.append([at, at, state])

    def is_watching(self) -> bool:
        """Every daemon was scraped: Prometheus takes five seconds before it discovers its targets."""
        if self._prometheus is None:
            return True
        with contextlib.suppress(OSError, ValueError, KeyError):
            up = [value for _, value in self._prometheus.query("up")]
            return len(up) == len(self.ports) and all(up) and not self._prometheus.firing()
        return False

    def forget(self) -> None:
        """Alerts that fired during the start do not count."""
        self.spans.clear()

    def has_fired(self, names: Sequence[str]) -> bool:
        """Also true if alerts are not watched: then there is nothing to wait for."""
        return bool(self.why_not) or set(names) <= fired(self.spans)

    def as_json(self) -> dict[str, Any]:
        return {"speed": SPEED, "spans": self.spans, "why_not": self.why_not}


def fired(spans: Mapping[str, list[list[Any]]]) -> set[str]:
    return {name for name, found in spans.items() if any(state == "firing" for _, _, state in found)}


def _unavailable() -> str:
    if shutil.which("prometheus") is None:
        return "Prometheus is not installed (Debian: apt-get install prometheus)"
    if not list(RULES.glob("*.yml")):
        return "there are no rules in deploy/prometheus/rules"
    return ""
