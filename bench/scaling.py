"""`python -m bench.scaling`: simulates lanes, processes and servers, and prints the table of docs/scaling.md.

A closed queueing network: each lane claims, encodes, sends and settles one batch after the other; processes, PostgreSQL
and Elasticsearch are queues with so many cores. It measures nothing: its constants are in scaling_figures.toml.
"""

import heapq
import sys
import tomllib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FIGURES = Path(__file__).with_name("scaling_figures.toml")
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- table: python -m bench.scaling --write -->", "<!-- end of table -->"
BATCHES_A_LANE = 200
FULL = 0.9  # a part that is busy for this share of the time is the limit


def figures() -> dict[str, float]:
    return {name: float(figure["value"]) for name, figure in tomllib.loads(FIGURES.read_text()).items()}


@dataclass
class ServiceQueue:
    """First come, first served by `cores` servers. Records how long they were busy."""

    name: str
    cores: int
    busy: float = 0.0
    _free: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._free = [0.0] * self.cores

    def serve(self, at: float, seconds: float) -> float:
        """When work that arrives at `at` is done."""
        ends = max(at, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, ends)
        self.busy += seconds
        return ends


@dataclass(frozen=True)
class Setup:
    """One row of the table. `shared_cores`: everything on one machine with this many cores."""

    name: str
    processes: int
    lanes: int = 2
    databases: int = 1
    pg_cores: int = 4
    es_nodes: int = 1
    es_cores: int = 8
    shards: int = 1
    shared_cores: int = 0


@dataclass(frozen=True)
class Outcome:
    rate: float
    limit: str


SETUPS = (
    Setup("all on one machine with two cores", 1, shared_cores=2),
    Setup("one process, two lanes", 1),
    Setup("one process, four lanes", 1, lanes=4),
    Setup("one process, eight lanes", 1, lanes=8, shards=2),
    Setup("two processes, four lanes", 2, lanes=4, shards=2),
    Setup("four processes on four hosts (KEDA's most)", 4, lanes=4, shards=4),
    Setup("the same, three data nodes", 4, lanes=4, es_nodes=3, shards=6),
    Setup("eight processes, six data nodes", 8, lanes=4, es_nodes=6, shards=12),
    Setup("the same, PostgreSQL with 8 cores", 8, lanes=4, pg_cores=8, es_nodes=6, shards=12),
    Setup("two such databases into one index", 16, lanes=4, databases=2, pg_cores=8, es_nodes=6, shards=12),
)


class Network:
    """The queues of one setup, and the path of a lane's batch through them."""

    def __init__(self, setup: Setup, known: dict[str, float]) -> None:
        self.setup, self.known = setup, known
        one = ServiceQueue("the machine's cores", setup.shared_cores) if setup.shared_cores else None
        self.databases = [one or ServiceQueue("PostgreSQL's CPU", setup.pg_cores) for _ in range(setup.databases)]
        self.elastic = one or ServiceQueue("Elasticsearch's CPU", setup.es_nodes * setup.es_cores)
        self.processes = [one or ServiceQueue("a daemon's core", 1) for _ in range(setup.processes)]
        self.disks = [ServiceQueue("PostgreSQL's WAL disk", 1) for _ in range(setup.databases)]

    def batch(self, process: int, at: float) -> Iterator[float]:
        """Yields the time when each step ends and the next may start."""
        known, batch = self.known, self.known["batch"]
        database = process % self.setup.databases
        for part in ("claim", "write", "settle"):
            if part == "write":
                at = yield from self._write(process, at)
                continue
            at = self.processes[process].serve(at, batch * known["python_us"] / 4e6)
            yield at
            at = self.databases[database].serve(at + known["round_trip_ms"] / 1e3, batch * known["pg_us"] / 2e6)
            yield at
            at = self.disks[database].serve(at, batch * known["wal_bytes"] / 2e6 / known["wal_mb_per_second"])
            yield at

    def _write(self, process: int, at: float) -> Generator[float, None, float]:
        """Encoding and reading; then the shards work in parallel."""
        known, batch, shards = self.known, self.known["batch"], self.setup.shards
        at = self.processes[process].serve(at, batch * known["python_us"] / 2e6)
        yield at
        at += known["request_ms"] / 1e3
        yield at
        work = batch * known["es_us"] / 1e6 / shards
        at = max(self.elastic.serve(at, work) for _ in range(shards))
        yield at
        return at

    def queues(self) -> list[ServiceQueue]:
        return [*self.databases, self.elastic, *self.processes, *self.disks]


def simulate(setup: Setup, known: dict[str, float]) -> Outcome:
    network = Network(setup, known)
    lanes = [process for process in range(setup.processes) for _ in range(setup.lanes)]
    ends = played([_lane(network, process) for process in lanes])
    rate = len(lanes) * BATCHES_A_LANE * known["batch"] / ends
    return Outcome(rate, limit(network.queues(), ends) or "waiting: more lanes help")


def played(flights: Sequence[Iterator[float]]) -> float:
    """When the last of them has ended: whoever is first in time goes on."""
    coming, ends = [(0.0, number) for number in range(len(flights))], 0.0
    while coming:
        _, number = heapq.heappop(coming)
        at = next(flights[number], None)
        if at is not None:
            ends = max(ends, at)
            heapq.heappush(coming, (at, number))
    return ends


def _lane(network: Network, process: int) -> Iterator[float]:
    at = 0.0
    for _ in range(BATCHES_A_LANE):
        for ended in network.batch(process, at):
            at = ended
            yield at


def limit(queues: Iterable[ServiceQueue], ends: float) -> str:
    """The part that is full; empty where all of them wait."""
    fullest = max(queues, key=lambda queue: queue.busy / queue.cores)
    return fullest.name if fullest.busy / fullest.cores / ends >= FULL else ""


def table() -> str:
    known = figures()
    rows = [
        "| setup | lanes | PostgreSQL cores | Elasticsearch nodes x cores | shards | events per second | limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for setup in SETUPS:
        found = simulate(setup, known)
        servers = (
            ("shared", "shared")
            if setup.shared_cores
            else (
                f"{setup.databases} x {setup.pg_cores}" if setup.databases > 1 else str(setup.pg_cores),
                f"{setup.es_nodes} x {setup.es_cores}",
            )
        )
        lanes = f"{setup.processes} x {setup.lanes}"
        rate = f"{round(found.rate, -3):,.0f}"
        rows.append(
            f"| {setup.name} | {lanes} | {servers[0]} | {servers[1]} | {setup.shards} | {rate} | {found.limit} |"
        )
    return "\n".join(rows)


def written(page: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{made}\n{end}{after}"


if __name__ == "__main__":
    made = table()
    print(made)
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text(), made))
