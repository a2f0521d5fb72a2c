"""Payloads as people see them: named fields hidden, every other digit kept."""

import json

from outbox.policy.redact import MASK, masked

PAYLOAD = (
    b'{"big": 12345678901234567890, "price": 1.10, "password": "x", "deep": [{"Password": {"a": 1}}], "s": "\\u00e9"}'
)


def test_named_fields_are_hidden_at_any_depth_whatever_their_case() -> None:
    shown = json.loads(masked(PAYLOAD, ["PASSWORD"]))
    assert shown["password"] == MASK
    assert shown["deep"] == [{"Password": MASK}]
