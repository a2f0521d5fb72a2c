"""How a failure is classified, by which rule and why: for a reply that someone has, or for an event that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from outbox.errors import UsageError
from outbox.ops.stored_event import StoredEvent
from outbox.policy.classify import Explanation, explain_item, explain_request
from outbox.policy.event import REFRESH
from outbox.policy.outcome import Failure, FailureClass, Reason

_WHAT_HAPPENS = {
    FailureClass.TRANSIENT: "it is tried again with growing waits, up to its attempts, then failed",
    FailureClass.DETERMINISTIC: "it fails at once, under the brake; a person fixes the cause and replays it",
    FailureClass.SYSTEMIC: "no attempt is spent; the target pauses, is probed, and resumes when the cause is gone",
}
_ACTIONS = {"index", "create", "update", "delete"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `outbox explain-error` prints. `reason` is empty where nothing failed."""

    outcome: str
    rule: str
    why: str
    reason: str = ""
    failure_class: str = ""
    failure_type: str = ""
    code: str = ""
    error: str = ""
    fingerprint: str = ""
    what_happens: str = ""


def explain_reply(text: bytes | str, status: int | None = None) -> list[Verdict]:
    """A bulk reply, one item of it, an error object, or the body of a refused request: whatever a person has."""
    try:
        reply = orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        raise UsageError(f"the reply is not JSON: {wrong}") from wrong
    if not isinstance(reply, dict):
        raise UsageError("the reply is no JSON object")
    if isinstance(reply.get("items"), list):
        return [_item(item) for item in reply["items"] if isinstance(item, dict)]
    found = status or reply.get("status")
    if len(reply) == 1 and reply.keys() <= _ACTIONS:
        return [_item(reply)]
    if not isinstance(found, int):
        raise UsageError("the reply has no status: give it with --status")
    if "error" in reply and "_id" not in reply:
        return [verdict(explain_request(found, reply))]
    error = reply.get("error", reply if "type" in reply else None)
    return [verdict(explain_item("index", found, error))]


def _item(item: Mapping[str, Any]) -> Verdict:
    op, inside = next(iter(item.items()), ("index", {}))
    if not isinstance(inside, dict):
        raise UsageError("an item of the reply is no JSON object")
    return verdict(explain_item(op, inside.get("status", 0), inside.get("error")))


def verdict(explanation: Explanation) -> Verdict:
    outcome = explanation.outcome
    if not isinstance(outcome, Failure):
        return Verdict(type(outcome).__name__.lower(), explanation.rule, explanation.why, what_happens="it is done")
    return Verdict(
        outcome="failure",
        rule=explanation.rule,
        why=explanation.why,
        reason=outcome.reason,
        failure_class=outcome.failure_class,
        failure_type=outcome.reason.failure_type,
        code=outcome.code,
        error=outcome.error,
        fingerprint=outcome.fingerprint or "",
        what_happens=_WHAT_HAPPENS[outcome.failure_class],
    )


def explain_stored(event: StoredEvent, detail: bytes | None) -> Verdict:
    """A stored failure again through the table: its detail holds the status and the cause chain."""
    found = _explain_stored(event.error_reason, event.error, event.error_code, detail)
    if event.op != REFRESH or event.last_attempt_at is None:
        return found
    read_at = event.last_attempt_at.isoformat(" ", "seconds")
    return replace(found, why=f"{found.why}; its document was read from the view at {read_at}, a replay reads it anew")


def _explain_stored(reason: str | None, error: str | None, code: str | None, detail: bytes | None) -> Verdict:
    if reason is None:
        raise UsageError("this event has no failure to explain")
    told = orjson.loads(detail) if detail else None
    if isinstance(told, dict) and isinstance(told.get("status"), int) and told.get("error"):
        return verdict(explain_item("index", told["status"], told["error"]))
    known = next((each for each in Reason if each == reason), None)
    if known is None:
        why = "the reason is not of this program: it was there before the table was adopted"
        return Verdict("failure", "none", why, reason=reason, error=error or "")
    return Verdict(
        outcome="failure",
        rule="none",
        why="it was judged before anything was sent, or no reply came: the reason itself says all that is known",
        reason=known,
        failure_class=known.failure_class,
        failure_type=known.failure_type,
        code=code or "",
        error=error or "",
        what_happens=_WHAT_HAPPENS[known.failure_class],
    )
