"""startup: exec to the first byte of /healthz, against `python -c "import psycopg"` in the same round."""

import compileall
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

import outbox
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import LOG, stopped
from outbox.embedded.process import free_port

BAR = Threshold("first byte of /healthz / import psycopg", 3.0, 2.0, most=True)
YARDSTICK = [sys.executable, "-c", "import psycopg"]
OUTBOX = [sys.executable, "-m", "outbox"]
LIMIT_SECONDS = 60.0
PAUSE_SECONDS = 0.002  # between two polls: adds at most this much to the figure


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 15) -> BenchmarkResult:
    rounds = 1 if smoke else rounds
    result = BenchmarkResult("startup", smoke)
    result.settings = {"rounds": rounds, "bytecode": "compiled before, as by an installation"}
    compileall.compile_dir(str(Path(outbox.__file__).parent), quiet=1)
    with stack.database() as url, stack.index() as index:
        stack.fresh_index(index)
        environ = _environ(url, stack.elastic_url, index)
        if not smoke:
            _round(BenchmarkResult("not measured", smoke), environ)  # fills the page cache
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            _round(result, environ)
    result.judge(BAR, "ratio")
    return result


def _round(result: BenchmarkResult, environ: Mapping[str, str]) -> None:
    """The reference before and after: a change of the machine's speed affects both sides."""
    before = _seconds(YARDSTICK, environ)
    alive, cpu, ready = _daemon(environ)
    yardstick = (before + _seconds(YARDSTICK, environ)) / 2
    result.add("import psycopg", "ms", yardstick * 1000)
    result.add("outbox run to /healthz", "ms", alive * 1000)
    result.add("CPU of outbox run to /healthz", "ms", cpu * 1000)
    result.add("outbox run to /readyz 200", "ms", ready * 1000)
    result.add("outbox --version", "ms", _seconds([*OUTBOX, "--version"], environ) * 1000)
    result.add("outbox --help", "ms", _seconds([*OUTBOX, "--help"], environ) * 1000)
    result.add("ratio", "", alive / yardstick)


def _environ(url: str, elastic_url: str, index: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OUTBOX_", "ELASTIC_", "DATABASE_URL"))}
    ours = {"DATABASE_URL": url, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": index, "OUTBOX_LOG_LEVEL": "warning"}
    return {**kept, **ours}


def _seconds(command: list[str], environ: Mapping[str, str]) -> float:
    started = time.monotonic()
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def _daemon(environ: Mapping[str, str]) -> tuple[float, float, float]:
    """Seconds to the first byte of /healthz, CPU time until then, seconds to a 200 of /readyz."""
    port = free_port()
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("ab") as log:
        started = time.monotonic()
        process = subprocess.Popen(
            [*OUTBOX, "run"], env={**environ, "OUTBOX_METRICS_PORT": str(port)}, stdout=log, stderr=log
        )
        with stopped(process):
            _wait(process, port, "/healthz", b"HTTP/1.1 200 ")
            alive = time.monotonic() - started
            cpu = sum(psutil.Process(process.pid).cpu_times()[:2])
            _wait(process, port, "/readyz", b"HTTP/1.1 200 ")
            return alive, cpu, time.monotonic() - started


def _wait(process: subprocess.Popen[bytes], port: int, path: str, answer: bytes) -> None:
    ends = time.monotonic() + LIMIT_SECONDS
    while _first_bytes(port, path, len(answer)) != answer:
        if process.poll() is not None:
            raise RuntimeError(f"the daemon ended with {process.returncode}; see {LOG}")
        if time.monotonic() > ends:
            raise TimeoutError(f"no {answer.decode()} at {path} within {LIMIT_SECONDS:.0f} s; see {LOG}")
        time.sleep(PAUSE_SECONDS)


def _first_bytes(port: int, path: str, count: int) -> bytes:
    """A plain socket: the work of an HTTP client would be measured too."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            return connection.recv(count)
    except OSError:
        return b""
