"""Verdicts of benchmarks: no case hides another, and a result names its own servers."""

from bench import drain, drain_matrix
from bench.result import BenchmarkResult


def judged(values: dict[str, float]) -> BenchmarkResult:
    result = BenchmarkResult("drain_matrix", smoke=False)
    for name, value in values.items():
        result.add(f"{name}: ratio", "", value)
    drain_matrix.judge(result)
    return result


def test_every_case_of_the_drain_matrix_is_judged_by_the_bar_of_its_kind() -> None:
    result = judged({name: 0.6 - number / 1000 for number, name in enumerate(drain_matrix.CASES)})
    assert [bar.name.split(": ")[0] for bar, _ in result.bars] == list(drain_matrix.CASES)
    views = {bar.name for bar, _ in result.bars if bar.goal == drain_matrix.VIEW_BAR.goal}
    assert len(views) == 2
    assert all("from the view" in name for name in views)
    plain = ["500 B: drain rate / raw _bulk"]
    assert [bar.name for bar, _ in result.bars if bar.first == drain.BAR.first] == plain
    assert [bar.name for bar, value in result.bars if bar.verdict(value) == "MISSED"] == plain
    assert not result.passed
