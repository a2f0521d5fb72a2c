"""profile: where the daemon's time goes during a drain, by py-spy; kept as a picture. Has no bar."""

import subprocess
from pathlib import Path
from typing import Any

from bench.load import fill
from bench.result import RESULTS, BenchmarkResult, CannotRun, progress
from bench.stack import BenchmarkServers
from bench.tools import programs
from bench.worker import daemons

LEAST_SHARE = 0.01  # thinner than this is not drawn
MOST_SECONDS = 20


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 1, events: int = 400_000, size: int = 500
) -> BenchmarkResult:
    events = 2_000 if smoke else events
    program = str(programs("py-spy", "py-spy") / "py-spy")
    result = BenchmarkResult("profile", smoke)
    result.settings = {"events": events, "document_bytes": size, "tool": _said([program, "--version"])}
    with stack.database() as url, stack.index() as index:
        stack.fresh_index(index)
        with daemons(url, stack.elastic_url, index) as running:
            running.pause()
            fill(url, events, size)
            running.resume()
            progress("sampling")
            stacks = record(program, running.processes[0].pid, 2 if smoke else MOST_SECONDS)
            running.wait_done(events)
    tree = grown(stacks)
    result.settings["tree"] = tree
    for name, share in by_own_time(stacks)[:15]:
        result.add(f"own time: {name}", "share", share)
    return result


def record(program: str, pid: int, seconds: int) -> dict[tuple[str, ...], int]:
    """Samples by stack, of running threads only: a lane that waits for a server costs nothing."""
    out = RESULTS / "profile.raw"
    command = [program, "record", "--pid", str(pid), "--duration", str(seconds), "--rate", "200", "--nonblocking"]
    command += ["--format", "raw", "--output", str(out), "--gil"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    if done.returncode or not out.exists():
        raise CannotRun(f"py-spy cannot read the daemon: {(done.stderr.strip() or 'no message')[-200:]}")
    return parsed(out.read_text())


def parsed(text: str) -> dict[tuple[str, ...], int]:
    """`a (x.py:1);b (y.py:2) 17` -> {("a x", "b y"): 17}, lines of one function together."""
    stacks: dict[tuple[str, ...], int] = {}
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if count.isdigit() and frames:
            key = tuple(_frame(frame) for frame in frames.split(";"))
            stacks[key] = stacks.get(key, 0) + int(count)
    return stacks


def _frame(text: str) -> str:
    name, _, place = text.partition(" (")
    file = place.rstrip(")").rsplit(":", 1)[0]
    short = "/".join(Path(file).with_suffix("").parts[-2:])
    return f"{name} {short}".strip()


def grown(stacks: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """A tree of shares without the thin branches."""
    total = sum(stacks.values()) or 1
    root: dict[str, Any] = {"name": "all", "share": 1.0, "children": {}}
    for frames, count in stacks.items():
        node = root
        for frame in frames:
            node = node["children"].setdefault(frame, {"name": frame, "share": 0.0, "children": {}})
            node["share"] += count / total
    return _pruned(root)


def _pruned(node: dict[str, Any]) -> dict[str, Any]:
    children = [_pruned(child) for child in node["children"].values() if child["share"] >= LEAST_SHARE]
    return {"name": node["name"], "share": round(node["share"], 4), "children": children}


def by_own_time(stacks: dict[tuple[str, ...], int]) -> list[tuple[str, float]]:
    total = sum(stacks.values()) or 1
    own: dict[str, int] = {}
    for frames, count in stacks.items():
        own[frames[-1]] = own.get(frames[-1], 0) + count
    return sorted(((name, n / total) for name, n in own.items()), key=lambda found: -found[1])


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
