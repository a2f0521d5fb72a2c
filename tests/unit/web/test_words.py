"""Numbers, ages, times and our own sentences as people read them."""

from outbox.web.templating import coded


def test_backticks_become_code_after_everything_was_escaped() -> None:
    assert coded("run `outbox doctor` <b>`<script>`") == (
        "run <code>outbox doctor</code> &lt;b&gt;<code>&lt;script&gt;</code>"
    )
