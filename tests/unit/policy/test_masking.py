"""Payloads as people see them: named fields hidden, every other digit kept."""

import json

import pytest

from outbox.policy.redact import MASK, masked

PAYLOAD = (
    b'{"big": 12345678901234567890, "price": 1.10, "password": "x", "deep": [{"Password": {"a": 1}}], "s": "\\u00e9"}'
)


def test_named_fields_are_hidden_at_any_depth_whatever_their_case() -> None:
    shown = json.loads(masked(PAYLOAD, ["PASSWORD"]))
    assert shown["password"] == MASK
    assert shown["deep"] == [{"Password": MASK}]


def test_other_numbers_keep_every_digit() -> None:
    text = masked(PAYLOAD, ["password"]).decode()
    assert "12345678901234567890" in text
    assert "1.10" in text


@pytest.mark.parametrize("payload", [b"not json", b'{"a": ' * 100_000])
def test_what_cannot_be_read_is_hidden_as_a_whole(payload: bytes) -> None:
    assert masked(payload, ["a"]) == b'"***"'
