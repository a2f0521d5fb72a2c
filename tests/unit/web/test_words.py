"""Numbers, ages, times and our own sentences as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from outbox.web import templating
from outbox.web.templating import coded, nice, spark, stacked

NOW = datetime(2026, 2, 3, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "-"),
        (0.4, "0.4 s"),
        (48, "48 s"),
        (360, "6 min"),
        (10_800, "3 h"),
        (1_036_800, "12 d"),
        (10_520_000, "4 months"),
    ],
)
def test_ages_have_one_unit(seconds: float | None, told: str) -> None:
    assert templating.age(seconds) == told


def test_times_are_shown_both_ways() -> None:
    assert templating.ago(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert templating.ago(NOW + timedelta(seconds=40), NOW) == "in 40 s"
    assert templating.ago(NOW, NOW) == "just now"


def test_counts_say_where_they_stopped() -> None:
    assert templating.count(12345) == "12,345"
    assert templating.count(10_000, capped=True) == "10,000+"


def test_rates_are_shown_in_the_unit_that_reads_best() -> None:
    said = [templating.rate(n) for n in (0, 0.05, 0.5, 2.5, 1200)]
    assert said == [
        "0 /s",
        "3.0 /min",
        "30 /min",
        "2.5 /s",
        "1,200 /s",
    ]


def test_control_characters_are_made_visible() -> None:
    assert templating.visible("a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


def test_backticks_become_code_after_everything_was_escaped() -> None:
    assert coded("run `outbox doctor` <b>`<script>`") == (
        "run <code>outbox doctor</code> &lt;b&gt;<code>&lt;script&gt;</code>"
    )


def test_a_chart_holds_every_bucket_and_never_leaves_its_frame() -> None:
    chart = stacked([("a", {"document": 3, "network": 1}), ("b", {}), ("c", {"document": 40})], ["document", "network"])
    assert chart.total == 44
    assert len(chart.bars) == 3
    assert all(0 <= bar.y <= chart.height and bar.height > 0 for bar in chart.bars)
    assert chart.top >= 40


@pytest.mark.parametrize("most", [0, 1, 4, 5, 11, 99, 101, 12_345])
def test_the_top_of_a_chart_is_round_and_not_below(most: int) -> None:
    assert most <= nice(most) <= max(4, most * 2)


def test_a_sparkline_of_nothing_is_flat_and_of_no_values_empty() -> None:
    assert spark([]) == ""
    assert len({point.split(",")[1] for point in spark([0, 0, 0]).split()}) == 1
