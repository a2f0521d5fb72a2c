"""Owns the reading of a bulk reply: one outcome an action, or the word that it cannot be read. It sends nothing."""

from collections.abc import Sequence
from typing import Any

import orjson

from outbox.fast_path import all_indexed
from outbox.policy.classify import Report, classify_item, unreadable
from outbox.policy.outcome import WRITTEN, Failure, Outcome
from outbox.ports import Action


def read(raw: bytes, actions: Sequence[Action], report: Report | None = None) -> list[Outcome] | Failure:
    """Outcomes in order. Every item is looked at, also when `errors` is false: a row is done by its item's word."""
    if all_indexed(raw, len(actions)):
        return [WRITTEN] * len(actions)
    try:
        reply = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return unreadable("not JSON")
    items = reply.get("items") if isinstance(reply, dict) else None
    if not isinstance(items, list):
        return unreadable("no items")
    if len(items) != len(actions):
        return unreadable(f"{len(items)} items for {len(actions)} actions")
    return _each(items, actions, report)


def _each(items: list[Any], actions: Sequence[Action], report: Report | None) -> list[Outcome] | Failure:
    outcomes: list[Outcome] = []
    for item, action in zip(items, actions, strict=True):
        word = "index" if action.body is not None else "delete"
        # A slot that does not answer our word is another request's, or shuffled: nothing in this reply is believed.
        result = item.get(word) if isinstance(item, dict) else None
        if not isinstance(result, dict):
            return unreadable("an item that answers another action")
        fine = len(result) == 1 and result.get("status") in (200, 201)
        outcomes.append(WRITTEN if fine else classify_item(word, result, report))
    return outcomes
