"""Verdicts of benchmarks: no case hides another, and a result names its own servers."""

from pathlib import Path

from bench import drain, drain_matrix, kafka, peers
from bench.result import BenchmarkResult

ROOT = Path(__file__).parents[3]


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


def test_peers_are_compared_as_shares_of_raw_in_the_same_round() -> None:
    """In the second round the machine was half as fast for all: the shares do not change."""
    result = BenchmarkResult("peers", smoke=False)
    rates = {peers.OURS: 6_000, peers.POLLER: 4_000, peers.SNAPSHOT: 3_000, peers.TRIGGERS: 900, peers.STREAM: 600}
    for speed in (1.0, 0.5, 1.0):
        result.add(peers.RAW, "docs/s", 10_000 * speed)
        for side, rate in rates.items():
            result.add(f"{side}: rate", "docs/s", rate * speed)
            result.add(f"{side}: CPU", "us/event", 60_000 / rate)
            result.add(f"{side}: p50", "ms", 10.0)
            result.add(f"{side}: p99", "ms", 20.0)
    peers.judge(result)
    assert result.of("outbox: share of raw").values == [0.6, 0.6, 0.6]
    found = {bar.name: (round(value, 3), bar.verdict(value)) for bar, value in result.bars}
    assert found["share of raw _bulk / the best peer's"] == (1.5, "goal reached")
    assert found["CPU of our processes / the poller's"] == (0.667, "MISSED")
    assert found["CPU of our processes / PGSync live's"] == (0.15, "MISSED")
    assert found["p50 / PGSync's best"] == (1.0, "passed")


def test_the_kafka_benchmark_counts_walsender_and_exceptions_against_claim_and_settle() -> None:
    result = BenchmarkResult("kafka", smoke=False)
    for name, value in {
        "Kafka / raw": 0.75,
        "Kafka / table": 1.3,
        "with poison / without": 0.97,
        "CPU of the walsender": 4.0,
        "Kafka: CPU of postgresql": 2.0,  # the checks against deletes, which are no exceptions
        "Kafka, 0.05 % poison: CPU of postgresql": 5.0,
        "table: CPU of postgresql": 35.0,
        "WAL after the insert": 3.0,
        "Kafka, 0.05 % poison: WAL": 10.0,
        "table: WAL": 1300.0,
    }.items():
        result.add(name, "", value)
    kafka.judge(result)
    found = {bar.name.split(":")[0]: round(value, 3) for bar, value in result.bars}
    assert found["CPU of PostgreSQL"] == 0.2
    assert found["WAL beyond the insert"] == 0.01
    assert result.passed
    result.add("CPU of the walsender", "", 20.0)
    result.bars.clear()
    kafka.judge(result)
    assert not result.passed
