"""Owns a page of metrics between a daemon and Prometheus: the daemon's own, but for the series that a file names.

Runs by itself in a container: `python altering.py UPSTREAM FILE`. The file is a list, read anew for each request, of
{"series": NAME, "with": a label as it is written, or "", "set": X | "add": X | "grow": X per second since "since"}.
"""

import json
import re
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 9108
LINE = re.compile(r"(?P<series>[a-z0-9_]+)(?P<labels>\{.*\})? (?P<value>\S+)$")


def altered(page: str, alterations: list[dict[str, Any]], now: float) -> str:
    return "\n".join(_line(line, alterations, now) for line in page.split("\n"))


def _line(line: str, alterations: list[dict[str, Any]], now: float) -> str:
    found = LINE.match(line)
    if found is None:
        return line
    labels, value = found["labels"] or "", float(found["value"])
    for each in alterations:
        if each["series"] == found["series"] and each.get("with", "") in labels:
            value = (
                each.get("set", value) + each.get("add", 0.0) + each.get("grow", 0.0) * (now - each.get("since", now))
            )
    return f"{found['series']}{labels} {value}" if value != float(found["value"]) else line


def _handler(upstream: str, file: Path) -> type[BaseHTTPRequestHandler]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with urllib.request.urlopen(upstream, timeout=2) as reply:
                    page = altered(reply.read().decode(), json.loads(file.read_text()), time.time()).encode()
            except OSError as failed:
                self.send_error(502, str(failed))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """One line per second says nothing."""

    return Page


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), _handler(sys.argv[1], Path(sys.argv[2]))).serve_forever()
