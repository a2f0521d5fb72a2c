"""`python -m bench.scaling_parts`: how long a billion documents take in parts, on so many processes and data nodes.

A closed queueing network as in `bench.scaling`: each process has two pages on their way, read from PostgreSQL, encoded,
and written to Elasticsearch. It measures nothing: its constants are in scaling_figures.toml. Prints a table of
docs/scaling.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.scaling import PAGE, ServiceQueue, figures, limit, played, written

BEGIN, END = "<!-- table: python -m bench.scaling_parts --write -->", "<!-- end of parts -->"
DOCUMENTS = 1_000_000_000
A_PAGE, IN_FLIGHT = 1_000, 2  # as the copier has them
PAGES = 60  # simulated for each place: the rate is steady from the first on


@dataclass(frozen=True)
class CopySetup:
    """One row. `shared_cores`: everything on one machine with this many cores."""

    name: str
    processes: int
    pg_cores: int = 8
    es_nodes: int = 1
    es_cores: int = 8
    shards: int = 1
    shared_cores: int = 0


@dataclass(frozen=True)
class CopyOutcome:
    rate: float
    limit: str

    @property
    def hours(self) -> float:
        return DOCUMENTS / self.rate / 3600


SETUPS = (
    CopySetup("all on one machine with two cores, one process", 1, shared_cores=2),
    CopySetup("the same, two processes", 2, shared_cores=2),
    CopySetup("one process", 1, shards=4),
    CopySetup("four processes", 4, shards=4),
    CopySetup("eight processes, three data nodes", 8, es_nodes=3, shards=6),
    CopySetup("16 executors, three data nodes", 16, es_nodes=3, shards=12),
    CopySetup("16 executors, six data nodes", 16, es_nodes=6, shards=12),
    CopySetup("32 executors, twelve data nodes", 32, es_nodes=12, shards=24),
    CopySetup("64 executors, 24 data nodes", 64, es_nodes=24, shards=48),
    CopySetup("the same, PostgreSQL with 16 cores", 64, pg_cores=16, es_nodes=24, shards=48),
)


class CopyNetwork:
    def __init__(self, setup: CopySetup, known: dict[str, float]) -> None:
        one = ServiceQueue("the machine's cores", setup.shared_cores) if setup.shared_cores else None
        self.known, self.shards = known, setup.shards
        self.database = one or ServiceQueue("PostgreSQL's CPU", setup.pg_cores)
        self.elastic = one or ServiceQueue("Elasticsearch's CPU", setup.es_nodes * setup.es_cores)
        self.processes = [one or ServiceQueue("a process's core", 1) for _ in range(setup.processes)]

    def pages(self, process: int) -> Iterator[float]:
        """Yields when each step ends and the next may start."""
        at, known = 0.0, self.known
        for _ in range(PAGES):
            at = self.database.serve(at + 2 * known["round_trip_ms"] / 1e3, A_PAGE * known["copy_pg_us"] / 1e6)
            yield at
            at = self.processes[process].serve(at, A_PAGE * known["copy_python_us"] / 1e6)
            yield at
            at += known["request_ms"] / 1e3
            yield at
            work = A_PAGE * known["copy_es_us"] / 1e6 / self.shards
            at = max(self.elastic.serve(at, work) for _ in range(self.shards))
            yield at

    def queues(self) -> list[ServiceQueue]:
        return [self.database, self.elastic, *self.processes]


def simulate(setup: CopySetup, known: dict[str, float]) -> CopyOutcome:
    network = CopyNetwork(setup, known)
    flights = [network.pages(process) for process in range(setup.processes) for _ in range(IN_FLIGHT)]
    ends = played(flights)
    fullest = limit(network.queues(), ends)
    return CopyOutcome(len(flights) * PAGES * A_PAGE / ends, fullest or "waiting: more processes help")


def table() -> str:
    known = figures()
    columns = ("setup", "PostgreSQL cores", "Elasticsearch nodes x cores", "shards", "documents per second")
    rows = [f"| {' | '.join((*columns, 'a billion takes', 'limit'))} |", "|---|---|---|---|---|---|---|"]
    for setup in SETUPS:
        found = simulate(setup, known)
        shared = setup.shared_cores > 0
        servers = "shared | shared" if shared else f"{setup.pg_cores} | {setup.es_nodes} x {setup.es_cores}"
        rate = f"{round(found.rate, -3):,.0f}"
        rows.append(f"| {setup.name} | {servers} | {setup.shards} | {rate} | {found.hours:,.1f} h | {found.limit} |")
    return "\n".join(rows)


if __name__ == "__main__":
    made = table()
    print(made)
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text(), made, BEGIN, END))
