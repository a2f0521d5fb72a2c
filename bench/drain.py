"""drain: events per second from all pending to all done, with full semantics, against raw `_bulk` of the same
documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Self

from bench.account import CpuAccount
from bench.load import bulk_bodies, fill, make_view, rest, text_of
from bench.raw import send
from bench.result import BenchmarkResult, Threshold, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons

BAR = Threshold("drain rate / raw _bulk", 0.65, 0.75)
COLD = Threshold("drain rate of a new daemon / warm", 0.95, 1.0)
COLD_SECONDS = 30
AN_HOUR = 3600  # of age: every row is checked against deletes, as after an outage
# A new JVM has half its speed: its compilers are busy for the first half million documents on two cores.
WARM_DOCUMENTS, WARM_PASSES = 100_000, 8


@dataclass(frozen=True, slots=True)
class Shape:
    """What is drained, and how. `lookup`: events without a payload, documents from the view. `prose`: bodies are
    natural text instead of one repeated sentence."""

    events: int = 200_000
    size: int = 500
    lanes: int = 2
    processes: int = 1
    batch: int = 500
    lookup: bool = False
    prose: bool = True

    @classmethod
    def of(cls, given: Mapping[str, int], *, smoke: bool) -> Self:
        return cls(**{"events": 2_000, **given} if smoke else given)  # type: ignore[arg-type]

    @property
    def documents(self) -> str:
        return text_of(self.size, prose=self.prose) + (", from a view" if self.lookup else "")

    @property
    def settings(self) -> dict[str, str]:
        return {"OUTBOX_CONCURRENCY": str(self.lanes), "OUTBOX_BATCH_SIZE": str(self.batch)}


def run(
    stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 5, postgres: int = 18, stock: int = 0, **shape: int
) -> BenchmarkResult:
    """`--set`: events, size, lanes, processes, batch, lookup, prose; postgres=15 for Debian's; stock=1 raises only
    shared_buffers and max_wal_size, 2 nothing."""
    other = (postgres, stock) != (18, 0)
    with stack.on_postgres(postgres, stock) if other else nullcontext(stack) as servers:
        return _run(servers, Shape.of(shape, smoke=smoke), 1 if smoke else rounds, smoke=smoke)


def _run(stack: BenchmarkServers, chosen: Shape, rounds: int, *, smoke: bool) -> BenchmarkResult:
    result = BenchmarkResult("drain", smoke)
    result.settings, result.documents, result.servers = asdict(chosen), chosen.documents, stack.versions()
    result.notes.append(
        f"new daemon: started on rows that are an hour old, all of them checked against deletes; its first"
        f" {COLD_SECONDS} s from the first claim on"
    )
    with prepared(stack, chosen, warm=not smoke) as one_round, stack.database() as url, stack.index() as index:
        if chosen.lookup:
            make_view(url, chosen.events, chosen.size, prose=chosen.prose)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            one_round(result)
            result.add("outbox, new daemon", "events/s", _cold(stack, url, index, chosen))
    result.judge(BAR, "ratio")
    result.judge(COLD, result.divide("new daemon / warm", "outbox, new daemon", "outbox"))
    return result


def _cold(stack: BenchmarkServers, url: str, index: str, shape: Shape) -> float:
    """Events per second of a daemon that has just been started."""
    fill(url, shape.events, shape.size, lookup=shape.lookup, prose=shape.prose, age_seconds=AN_HOUR)
    stack.fresh_index(index)
    stack.quiet()
    with daemons(url, stack.elastic_url, index, count=shape.processes, settings=shape.settings) as running:
        running.wait_done(shape.events)
        done, seconds = running.done_within(COLD_SECONDS)
    rest(url)
    stack.fresh_index(index)
    return done / seconds


def measure(
    stack: BenchmarkServers, shape: Shape, result: BenchmarkResult, *, rounds: int, warm: bool, prefix: str = ""
) -> None:
    with prepared(stack, shape, warm=warm, prefix=prefix) as one_round:
        for number in range(rounds):
            progress(f"{prefix}round {number + 1} of {rounds}")
            one_round(result)


@contextmanager
def prepared(
    stack: BenchmarkServers, shape: Shape, *, warm: bool, prefix: str = ""
) -> Iterator[Callable[[BenchmarkResult], None]]:
    """Daemons that are paused until a round begins. A round: raw, ours and raw again, each into a new index; the cost
    of ours is recorded."""
    with stack.database() as url, stack.index() as index, stack.index() as raw_index:
        if warm:
            warm_up(stack, url, raw_index, shape.size, shape.lanes)
        stack.fresh_index(index)
        if shape.lookup:
            make_view(url, shape.events, shape.size, prose=shape.prose)
        # Once: each round has the same documents, and an empty index accepts any version.
        fill(url, shape.events, shape.size, lookup=shape.lookup, prose=shape.prose)
        bodies = list(bulk_bodies(url, shape.batch, lookup=shape.lookup))
        count, settings = shape.processes, shape.settings
        with daemons(url, stack.elastic_url, index, count=count, settings=settings, paused=True) as running:
            one_round = partial(_round, stack, url, index, raw_index, running, shape, bodies, prefix)
            if warm:
                progress(f"{prefix}a warm-up round")
                one_round(BenchmarkResult("warm", True))
            yield one_round


def _round(
    stack: BenchmarkServers,
    url: str,
    index: str,
    raw_index: str,
    running: Daemons,
    shape: Shape,
    bodies: Sequence[bytes],
    prefix: str,
    result: BenchmarkResult,
) -> None:
    before = _raw(stack, raw_index, bodies, shape)
    # Right before its drain: rows that wait for half a minute are checked against deletes, and how many do so would
    # depend on how long raw took.
    fill(url, shape.events, shape.size, lookup=shape.lookup, prose=shape.prose)
    stack.fresh_index(index)
    stack.quiet()
    account = CpuAccount(stack, url, running)
    account.open()
    running.resume()
    ours = shape.events / running.wait_done(shape.events)
    account.close(result, shape.events, prefix)
    running.pause()
    rest(url)
    stack.fresh_index(index)  # raw must find the servers as before: nothing of ours to merge or to vacuum
    raw = 2 * shape.events / (before + _raw(stack, raw_index, bodies, shape))
    result.add(f"{prefix}raw _bulk", "docs/s", raw)
    result.add(f"{prefix}outbox", "events/s", ours)
    result.add(f"{prefix}ratio", "", ours / raw)


def _raw(stack: BenchmarkServers, index: str, bodies: Sequence[bytes], shape: Shape) -> float:
    """Seconds. Measured before ours and after it, because the speed of a shared machine changes within a round."""
    stack.fresh_index(index)
    stack.quiet()
    took = send(stack.elastic_url, index, bodies, shape.lanes * shape.processes)
    stack.fresh_index(index)  # so that its segments are not merged while ours runs
    return took


def warm_up(stack: BenchmarkServers, url: str, index: str, size: int, connections: int = 2) -> None:
    """By raw requests into `index`; the table of `url` only provides the documents."""
    progress("warming the search server")
    fill(url, WARM_DOCUMENTS, size)
    bodies = list(bulk_bodies(url, 500))
    for _ in range(WARM_PASSES):
        stack.fresh_index(index)
        send(stack.elastic_url, index, bodies, connections)
