"""drain_matrix: the drain with other sizes, payload or view, lanes and processes, with fewer events each."""

from dataclasses import replace

from bench.drain import BAR, Shape, measure
from bench.result import BenchmarkResult, Threshold
from bench.stack import BenchmarkServers

VIEW_BAR = Threshold("drain rate from the view / raw _bulk", 0.50, 0.60)
# The bar of `drain` is for its own documents and settings; what is turned here only has to keep within reach of it.
CASE_BAR = Threshold(BAR.name, 0.50, 0.70)
SMALL, USUAL, LARGE = 200, 500, 5_000
# One parameter changed at a time; all combinations would take hours and show no more.
CASES: dict[str, dict[str, int]] = {
    "500 B": {},
    "500 B, one sentence repeated": {"prose": False},
    "200 B": {"size": SMALL},
    "5 KB": {"size": LARGE},
    "500 B from the view": {"lookup": True},
    "5 KB from the view": {"size": LARGE, "lookup": True},
    "1 lane": {"lanes": 1},
    "4 lanes": {"lanes": 4},
    "2 processes": {"processes": 2},
    "2 processes of 4 lanes": {"processes": 2, "lanes": 4},
}
BYTES_A_ROUND = 100_000_000  # fewer large documents: the raw bodies of a round are held in memory


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, events: int = 100_000) -> BenchmarkResult:
    result = BenchmarkResult("drain_matrix", smoke)
    result.settings = {"events": events, "cases": list(CASES)}
    result.documents = "text, by case"
    for number, (name, turned) in enumerate(CASES.items()):
        size = int(turned.get("size", USUAL))
        most = 200 if smoke else min(events, BYTES_A_ROUND // size)
        shape = Shape(events=most, **turned)  # type: ignore[arg-type]
        warm = not smoke and not number  # warm up the JVM once
        times = 1 if smoke else rounds
        measure(stack, shape, result, rounds=times, warm=warm, prefix=f"{name}: ")
    judge(result)
    return result


def judge(result: BenchmarkResult) -> None:
    """Every case has its own bar, so that a good one hides no bad one."""
    for name, turned in CASES.items():
        bar = VIEW_BAR if turned.get("lookup") else CASE_BAR if turned else BAR
        result.judge(replace(bar, name=f"{name}: {bar.name}"), f"{name}: ratio")
