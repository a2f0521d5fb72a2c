"""Defines an experiment: its texts, load, fault and checks. The runner runs it."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labs.errors import UnknownLab
from labs.producing import Load

if TYPE_CHECKING:
    from labs.record import Record
    from labs.stage import Stage


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of the verdict: what is expected, what was observed, and where to find it. `event` is the first
    violator."""

    name: str
    expected: str
    observed: str
    ok: bool
    evidence: str = ""
    event: str | None = None


Check = Callable[["Record"], CheckResult]
Act = Callable[["Stage"], None]

# Short times, so that a lab takes half a minute. Experiments override them.
SETTINGS: Mapping[str, str] = {
    "OUTBOX_LEASE_SECONDS": "5",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "0.5",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.2",
    "OUTBOX_BATCH_SIZE": "50",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.3",
    "OUTBOX_MAX_BACKOFF_SECONDS": "2",
    "OUTBOX_MAX_ATTEMPTS": "50",
    "OUTBOX_SHUTDOWN_GRACE_SECONDS": "8",
    "ELASTIC_TIMEOUT_SECONDS": "3",
}


def nothing(_: Stage) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Guide:
    """Its place in labs/GUIDE.md, and the blanks of its template, filled in from a record."""

    number: int
    section: str
    level: str
    conclusion: Callable[[Record], Sequence[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One file in labs/experiments. `fault` returns when the fault took effect and lasted; `restore` is always
    called."""

    name: str
    title: str
    story: str
    hypothesis: str
    fault: Act
    bit: Check
    invariants: Sequence[Check]
    restore: Act = nothing
    steady_state: str = "ready, nothing failed, the oldest open event younger than 5 s, 40 events done"
    load: Load = field(default_factory=Load)
    least_events: int = 100
    settings: Mapping[str, str] = field(default_factory=dict)
    own_settings: Callable[[Stage], Mapping[str, str]] = lambda _: {}  # settings that are known only when it runs
    workers: tuple[str, ...] = ("w1",)
    links_apart: bool = False  # each daemon reaches Elasticsearch through its own proxy
    database_link: bool = False  # the daemons reach PostgreSQL through a proxy too
    secured: bool = False  # on its own Elasticsearch with security
    nodes: int = 1  # more: on its own Elasticsearch with so many, reached without a proxy
    kafka: bool = False  # events go through the event log and Kafka, on servers of its own
    only_elasticsearch: str = ""  # why it cannot run on OpenSearch
    index_settings: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    prepare: Act = nothing  # before the first daemon starts
    after: Act = nothing  # what a person does after recovery
    recovery_seconds: float = 30.0
    expected_alerts: tuple[str, ...] = ()
    finding: Callable[[Record], str] | None = None
    guide: Guide | None = None
    runbook: str = ""
    needs: str = "only its own database and index"
    seconds: int = 25  # approximate duration


def all_experiments() -> dict[str, Experiment]:
    """The six of the guide first, in its order; then the others by name."""
    from labs import experiments  # noqa: PLC0415  (they import this module)

    modules = [importlib.import_module(f"labs.experiments.{found.name}") for found in _files(experiments)]
    found = [module.EXPERIMENT for module in modules]
    found.sort(key=lambda one: (one.guide.number if one.guide else 99, one.name))
    return {one.name: one for one in found}


def _files(package: Any) -> list[pkgutil.ModuleInfo]:
    return [found for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")]


def find(name: str) -> Experiment:
    known = all_experiments()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UnknownLab(f"there is no lab {name!r}; {hint}`python -m labs list` shows all")
    return known[name]
