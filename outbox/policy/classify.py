"""Owns the way from a reply of Elasticsearch to an outcome, by the table in `reply_rules`. Sends and stores nothing."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from outbox.policy.outcome import (
    MISSING,
    WRITTEN,
    Code,
    Failure,
    FailureClass,
    Outcome,
    Reason,
    Stale,
)
from outbox.policy.redact import LONGEST_ERROR_BYTES, causes, cut, detail, fingerprint, summary
from outbox.policy.reply_rules import BY_STATUS, NO_TYPE, OUR_REQUEST, RULES, UNKNOWN, Rule

OnUnknown = Callable[[int, str], None]  # status and error type of an answer that no rule knows


@dataclass(frozen=True, slots=True)
class Split:
    """A document in this request is at fault: halve it and send again. `alone` is the verdict on a single document."""

    alone: Failure


RequestVerdict = Failure | Split


@dataclass(frozen=True, slots=True)
class Explanation:
    rule: str
    outcome: Outcome
    why: str


# At the end, because an id may hold the same words.
_CURRENT: Final = re.compile(r"current version \[(\d+)\] is higher (?:than|or equal to) the one provided \[\d+\]\Z")


def classify_item(op: str, item: Mapping[str, Any], report: OnUnknown | None = None) -> Outcome:
    """What one item of a bulk reply means: `{"status": ..., "error": ...}`; `op` is the action that was sent."""
    return explain_item(op, item.get("status"), item.get("error"), report).outcome


def classify_request(
    status: int, body: object, headers: Mapping[str, str], report: OnUnknown | None = None
) -> RequestVerdict:
    """What an HTTP error on the whole request means. Only validation and size are ever blamed on a document."""
    rule, failure = _refused(status, body, headers, report)
    if rule.name == "too large" or (rule.name == "document" and _type(_error_of(body)) == _VALIDATION):
        return Split(failure)
    return failure


_VALIDATION: Final = "action_request_validation_exception"


def explain_request(status: int, body: object) -> Explanation:
    rule, failure = _refused(status, body, {}, None)
    return Explanation(rule.name, failure, rule.why)


def explain_item(op: str, status: object, error: object, report: OnUnknown | None = None) -> Explanation:
    if not isinstance(status, int) or isinstance(status, bool):
        return Explanation("no status", unreadable("an item without a status"), "the reply cannot be read")
    if not error:
        match status:
            case 200 | 201:
                return Explanation("written", WRITTEN, "Elasticsearch has it")
            case 404 if op == "delete":
                return Explanation("missing", MISSING, "nothing was there; a tombstone holds the version now")
    if status == 409 and _type(error) in ("", "version_conflict_engine_exception"):
        return Explanation("stale", Stale(_current(error)), "a newer version is there already")
    rule = find(status, error)
    if rule is UNKNOWN and report is not None:
        report(status, _type(error) or "none")
    failure = _failure(rule, status, error, whole=rule.away)
    failure = replace(failure, shard=rule.away, contested=rule.contested, late=rule.late)
    return Explanation(rule.name, failure, rule.why)


def find(status: int, error: object) -> Rule:
    """The rule that decides: the outermost known cause first, then the status alone."""
    for cause in causes(error):
        error_type, text = str(cause.get("type") or ""), str(cause.get("reason") or "")
        for rule in RULES:
            if _fits(rule, status, error_type, text):
                return rule
    for rule in BY_STATUS:
        if _fits(rule, status, "", ""):
            return rule
    return NO_TYPE if status == 500 and not _type(error) else UNKNOWN


def _fits(rule: Rule, status: int, error_type: str, text: str) -> bool:
    return (
        (not rule.statuses or status in rule.statuses)
        and (not rule.types or error_type in rule.types.split())
        and re.match(rule.starts, text, re.DOTALL) is not None
    )


def _refused(status: int, body: object, headers: Mapping[str, str], report: OnUnknown | None) -> tuple[Rule, Failure]:
    error = _error_of(body)
    rule = find(status, error)
    known = rule is not UNKNOWN and (rule.reason is not Reason.ES_REJECTED_DOCUMENT or _type(error) == _VALIDATION)
    if not known and (status < 500 or status == 501):
        rule = OUR_REQUEST
    elif not known:
        if rule is not UNKNOWN:  # a document's fault by its name, but nobody says which document
            rule = find(status, None)
        if report is not None:
            report(status, _type(error) or "none")
    described = error or f"{rule.why} (content type {headers.get('content-type') or 'none'})"
    if error and isinstance(body, bytes):  # a sentence has no remedy
        described = f"{summary(error)} {rule.why}"
    return rule, _failure(rule, status, described, whole=rule.reason.failure_class is not FailureClass.DETERMINISTIC)


def unreadable(what: str) -> Failure:
    """An answer that does not say what became of the documents: the outcome is unknown."""
    return whole(Reason.ES_5XX, f"unreadable reply: {what}")


def whole(reason: Reason, error: str) -> Failure:
    """A failure of the whole request that no reply describes."""
    return Failure(reason, summary(error), fingerprint=_print_of(reason, error), whole=True)


def too_large(failure: Failure, times: int) -> Failure:
    """A document as large as a batch, alone and refused again and again: the refusal was about its size."""
    text = f"refused alone {times} times, the last time with: {failure.error}"
    return Failure(
        reason=Reason.TOO_LARGE,
        error=cut(text, LONGEST_ERROR_BYTES),
        code=Code.PAYLOAD_INVALID,
        fingerprint=_print_of(Reason.TOO_LARGE, "refused again and again"),
        detail=failure.detail,
    )


def _failure(rule: Rule, status: int, error: object, *, whole: bool) -> Failure:
    text = summary(error or rule.why)
    invalid = rule.reason in (Reason.ES_REJECTED_DOCUMENT, Reason.TOO_LARGE)
    return Failure(
        reason=rule.reason,
        error=cut(f"{status} {text}", LONGEST_ERROR_BYTES),
        code=Code.PAYLOAD_INVALID if invalid else Code.EXECUTION_FAILED,
        fingerprint=_print_of(rule.reason, text),
        detail={"status": status, "rule": rule.name, "why": rule.why, "error": detail(error)},
        whole=whole,
    )


@lru_cache(maxsize=1024)  # an outage brings the same text for every row
def _print_of(reason: Reason, text: str) -> str:
    return fingerprint(reason, text)


def _error_of(body: object) -> object:
    """Elasticsearch says `{"error": {...}}`; some old routes say `{"error": "text"}`; proxies say anything, and
    OpenSearch's security plugin a sentence."""
    if isinstance(body, bytes) and body.startswith(_SENTENCE):
        return {"reason": body[:200].decode("ascii", "replace")}
    return body.get("error") if isinstance(body, Mapping) else None


_SENTENCE: Final = b"OpenSearch Security"


def _type(error: object) -> str:
    return str(error.get("type") or "") if isinstance(error, Mapping) else ""


def _current(error: object) -> int | None:
    found = (_CURRENT.search(str(cause.get("reason") or "")) for cause in causes(error))
    return next((int(each[1]) for each in found if each), None)
