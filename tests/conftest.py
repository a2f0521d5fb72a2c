"""Owns the order and the marks of the layers, and hands the shared fixtures to every test."""

import gc
import json
import os
import signal
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.fixtures.depth import HOW_TO_RUN, RunSelection, depth
from tests.fixtures.servers import PRODUCT
from tests.fixtures.shared import await_shared_servers, shared_servers

# What decides about a run, then what is handed to tests. Each after those that it imports.
_RUN = ("dispatch", "durations", "limits")
_HANDED = (
    "processes", "starting", "postgres", "elasticsearch", "browser", "burners", "commands", "connect", "console",
    "desks", "embedded", "failures", "kafka", "queue", "roles", "secured", "secured_opensearch", "logins", "wired",
)  # fmt: skip
pytest_plugins = [f"tests.fixtures.{name}" for name in (*_RUN, *_HANDED)]

# No time limit per example: the machine is shared, and a slow moment is no finding.
settings.register_profile("house", deadline=None, print_blob=True, max_examples=depth(50, 100))
settings.load_profile("house")

# A shell that starts this in the background has SIGINT ignored, and what a test presses Ctrl-C on would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# While tests are collected next to nothing is garbage.
gc.disable()

LAYERS = ["unit", "contract", "model", "integration", "acceptance"]
TESTS = Path(__file__).parent
# The limit of a test in seconds by its mark, instead of `timeout` in pyproject.toml. Hangs are found late, but no slow
# machine is taken for one.
LIMITS = {"long": 2400, "slow": 1200}

# The mark of tests that say nothing about the search server of this run.
FOREIGN = "elasticsearch" if os.environ.get(PRODUCT, "").startswith("opensearch") else "opensearch"


def layer_of(item: pytest.Item) -> str:
    return _layer(item.path)


@cache
def _layer(file: Path) -> str:
    folder = file.relative_to(TESTS).parts[0]
    if folder not in LAYERS:
        raise pytest.UsageError(f"{file} is in no layer; move it into one of {', '.join(LAYERS)}")
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cheap layers first, so that a broken rule shows before a server is started."""
    left = {"foreign": [item for item in items if item.get_closest_marker(FOREIGN)], **RunSelection().out(items)}
    gone = {item for some in left.values() for item in some}
    config.hook.pytest_deselected(items=list(gone))
    TALLY.left_out = {mark: len(some) for mark, some in left.items() if mark in HOW_TO_RUN}
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = TALLY.left_out
    items[:] = [item for item in items if item not in gone]
    for item in items:
        item.add_marker(layer_of(item))
        if limit := next((limit for mark, limit in LIMITS.items() if item.get_closest_marker(mark)), None):
            item.add_marker(pytest.mark.timeout(limit))
    items.sort(key=lambda item: LAYERS.index(layer_of(item)))  # within a layer as tests/fixtures/durations.py left them


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no garbage collection visits it again."""
    gc.freeze()
    gc.enable()


class LayerTally:
    """Counts outcomes and seconds per layer for the summary at the end."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.seconds: dict[str, float] = {}
        self.left_out: dict[str, int] = {}

    def add(self, layer: str, outcome: str, seconds: float) -> None:
        counts = self.counts.setdefault(layer, {"passed": 0, "failed": 0, "skipped": 0})
        self.seconds[layer] = self.seconds.get(layer, 0.0) + seconds
        if outcome:
            counts[outcome] += 1


TALLY = LayerTally()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    decisive = report.when == "call" or report.outcome != "passed"
    TALLY.add(report.nodeid.split("/")[1], report.outcome if decisive else "", report.duration)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """With `-n`, one PostgreSQL and one Elasticsearch serve all processes; each has its own databases and indexes."""
    stack = ExitStack()
    config.add_cleanup(stack.close)
    os.environ.update(stack.enter_context(shared_servers()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if layer_of(item) != "unit":
        await_shared_servers()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process collects all tests, so each knows the whole number; one that died tells nothing."""
    TALLY.left_out = getattr(node, "workeroutput", {}).get("left_out", TALLY.left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("layers")
    for layer in LAYERS:
        if counts := TALLY.counts.get(layer):
            told = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)
            terminalreporter.line(f"{layer:<12} {told} in {TALLY.seconds[layer]:.1f} s")
    for mark, count in TALLY.left_out.items():
        terminalreporter.line(f"left out     {count} with the mark {mark}: {HOW_TO_RUN[mark]} runs them")
    if kept := os.environ.get("OUTBOX_TEST_TALLY"):  # for scripts/whole_run.py
        line = {
            "product": os.environ.get(PRODUCT) or "elasticsearch",
            "layers": TALLY.counts,
            "left_out": TALLY.left_out,
        }
        with Path(kept).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
