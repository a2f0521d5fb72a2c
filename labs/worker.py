"""One real daemon of a lab: start, kill -9, freeze, drain, its log and its pages. It changes nothing inside of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.addresses import known_as

# The daemon rejects unknown OUTBOX_* variables, so only these are inherited.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "VIRTUAL_ENV", "COVERAGE_", "COV_")
ROOT = Path(__file__).parents[1]


def environment(extra: Mapping[str, str], code: Path | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
    return {**kept, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "PYTHONPATH": str(code or ROOT), **extra}


class Worker:
    """`python -m outbox run` as `name`; `label` also counts its restarts (w1, w1.2, w1.3)."""

    def __init__(self, name: str, label: str, settings: Mapping[str, str], folder: Path, code: Path | None) -> None:
        self.name = name
        self.label = label
        self.port = int(settings["OUTBOX_METRICS_PORT"])
        self.log = folder / "logs" / f"{label}.ndjson"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.frozen = False
        self.ended_on_purpose = False
        own = {"OUTBOX_WORKER_ID": name, "OUTBOX_LOG_FORMAT": "json"}
        own["DATABASE_URL"] = known_as(label, settings["DATABASE_URL"])
        follow = [sys.executable, "-I", "-S", str(ROOT / "labs" / "follow.py"), str(os.getpid())]
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*follow, sys.executable, "-m", "outbox", "run"],
                env=environment({**settings, **own}, code),
                cwd=code or ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is handled by the lab, which stops its daemons in order
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        """kill -9, without a shutdown."""
        self.ended_on_purpose = True
        if self.running:
            self._popen.kill()
            self._popen.wait(10)

    def freeze(self) -> None:
        """SIGSTOP, like a long pause of the machine; its sockets stay open."""
        self.frozen = True
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.frozen and self.running:
            self._popen.send_signal(signal.SIGCONT)
        self.frozen = False

    def ask_to_stop(self) -> None:
        """SIGTERM; it drains."""
        self.ended_on_purpose = True
        if self.running:
            self._popen.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it still runs."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self, seconds: float = 15.0) -> int | None:
        """Drain it, and kill it if it does not end."""
        self.thaw()
        self.ask_to_stop()
        code = self.wait(seconds)
        if code is None:
            self.kill()
        return code

    def page(self, path: str, seconds: float = 1.0) -> tuple[int, str]:
        """Status and body of one of its pages; 0 if there is no reply."""
        try:
            return self._answer(path, seconds)
        except (OSError, http.client.HTTPException):
            return 0, ""

    def _answer(self, path: str, seconds: float) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=seconds) as reply:
                return int(reply.status), reply.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    def facts(self, event: str | None = None) -> list[dict[str, Any]]:
        return [fact for fact in log_facts(self.log) if event is None or fact.get("event") == event]

    def tail(self, lines: int = 8) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def log_facts(path: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """The JSON lines of a log from a byte position; other lines (a traceback) come as `text`."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(start)
        for line in lines:
            try:
                fact = json.loads(line)
            except ValueError:
                fact = None
            if isinstance(fact, dict):
                yield fact
            elif line.strip():
                yield {"event": "", "level": "text", "text": line.rstrip("\n")}
