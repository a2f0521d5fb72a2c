"""Numbers, ages, times and our own sentences as people read them."""

from outbox.web import templating
from outbox.web.templating import coded


def test_control_characters_are_made_visible() -> None:
    assert templating.visible("a\x1b[31mb\u202e") == "a\\x1b[31mb\\u202e"


def test_backticks_become_code_after_everything_was_escaped() -> None:
    assert coded("run `outbox doctor` <b>`<script>`") == (
        "run <code>outbox doctor</code> &lt;b&gt;<code>&lt;script&gt;</code>"
    )
