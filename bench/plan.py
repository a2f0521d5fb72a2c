"""Which benchmarks are still to be run, and how long they take: `scripts/bench all` in sessions. Runs nothing."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.result import RESULTS

KEPT: Final = Path("docs/performance")
LEAST_ROUNDS: Final = 3
# Minutes on two quiet cores, where no result says how long it took.
MINUTES: Final = {
    "drain": 9,
    "flat": 12,
    "pinned": 8,
    "latency": 5,
    "memory": 15,
    "producer": 2,
    "console": 7,
    "verify": 12,
    "peers": 22,
    "herd": 11,
    "startup": 2,
    "fanout": 4,
    "backfill": 4,
    "parallel": 22,
    "drain_matrix": 26,
    "profile": 3,
    "products": 9,
    "kafka": 12,
    "database_cost": 6,
    "latency_at": 30,
}
Found = dict[str, Any]


def results(name: str, folders: Sequence[Path] = (RESULTS, KEPT)) -> Iterator[Found]:
    """The full results of this benchmark: without smoke runs and runs with changed parameters. More rounds are no
    change; a result that does not say what was changed does not count."""
    for folder in folders:
        for path in (*folder.glob(f"{name}-*.json"), *folder.glob(f"{name}.json")):
            found = json.loads(path.read_text())
            turned = found.get("turned")
            same = turned == {} or (turned and set(turned) == {"rounds"} and turned["rounds"] >= LEAST_ROUNDS)
            if found["benchmark"] == name and not found["smoke"] and same:
                yield found


def is_current(found: Found) -> bool:
    """Whether it was measured on this program by this benchmark, committed or not."""
    parts = ("outbox", "sql", f"bench/{found['benchmark']}.py")
    command = ["git", "diff", "--quiet", found["commit"], "--", *parts]
    return (
        not found["commit"].endswith("-dirty")
        and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not any(map(is_current, results(name)))]


def minutes(name: str) -> float:
    """As long as the last time, or our estimate."""
    newest = max(results(name), key=lambda found: str(found["at"]), default={})
    return float(newest.get("seconds", 0)) / 60 or MINUTES.get(name, 0)


def fitting(names: Sequence[str], left: float) -> str | None:
    """The next that ends within `left` minutes."""
    return next((name for name in names if minutes(name) <= left), None)
