"""Numbers, ages, times and our own sentences as people read them."""

from outbox.web import templating
from outbox.web.templating import coded, stacked


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
