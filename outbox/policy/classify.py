"""Owns the one table from what Elasticsearch answered to an outcome. It sends nothing, and the text of an error is `redact`'s."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from outbox.policy.outcome import MISSING, WRITTEN, Code, Failure, Outcome, Reason, Stale
from outbox.policy.redact import LONGEST_ERROR_BYTES, causes, cut, detail, fingerprint, summary

Report = Callable[[int, str], None]  # status and error type of an answer that no rule knows


@dataclass(frozen=True, slots=True)
class Split:
    """Someone in this request is to blame: halve it and send again. `alone` is the verdict on a single document."""

    alone: Failure


RequestVerdict = Failure | Split


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits when all that it names fits: a status, a type of this cause, the beginning of its reason."""

    name: str
    reason: Reason
    why: str
    statuses: frozenset[int] = frozenset()
    types: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    away: bool = False  # never the document's doing: the index or the cluster is not there to write to

    def fits(self, status: int, error_type: str, text: str) -> bool:
        return (
            (not self.statuses or status in self.statuses)
            and (not self.types or error_type in self.types)
            and (self.pattern is None or self.pattern.match(text) is not None)
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `outbox explain-error` prints: the rule that decided, what it decided, and why."""

    rule: str
    outcome: Outcome
    why: str


def _rule(
    name: str,
    reason: Reason,
    why: str,
    *,
    status: str = "",
    types: str = "",
    starts: str = "",
    away: bool = False,
) -> Rule:
    return Rule(
        name=name,
        reason=reason,
        why=why,
        statuses=frozenset(int(word) for word in status.split()),
        types=frozenset(types.split()),
        # Anchored: a reason quotes names and values of the document, and these must not choose their own class.
        pattern=re.compile(starts, re.DOTALL) if starts else None,
        away=away,
    )


# Read from the top; the outermost cause that a rule knows decides, so a document's fault stays its own whatever
# it quotes from inside. Rules without a type stand at the end, where no cause was known.
RULES: Final[tuple[Rule, ...]] = (
    _rule("credentials", Reason.ES_AUTH, "no or wrong credentials: check ELASTIC_API_KEY", status="401"),
    _rule("privileges", Reason.ES_AUTH, "the key lacks a right on this index: it needs index, delete and view_index_metadata",
          status="403", types="security_exception"),
    _rule("not recovered", Reason.ES_5XX, "the cluster has no master or has not recovered its state",
          status="503", types="cluster_block_exception", away=True),
    _rule("blocked", Reason.ES_BLOCKED, "a block forbids writes: a person's, or the disk's flood stage (a 429 that no waiting cures)",
          types="cluster_block_exception"),
    _rule("index missing", Reason.ES_INDEX_MISSING, "the index or alias does not exist: `outbox index create`",
          types="index_not_found_exception aliases_not_found_exception alias_not_found_exception"),
    _rule("index name", Reason.ES_CONFIG, "the target's name is not allowed: check ELASTIC_INDEX",
          types="invalid_index_name_exception invalid_alias_name_exception"),
    _rule("closed", Reason.ES_CONFIG, "the index is closed: open it", types="index_closed_exception"),
    _rule("media type", Reason.ES_CONFIG, "the server does not speak this client's protocol version",
          types="media_type_header_exception"),
    _rule("write index", Reason.ES_CONFIG, "the alias has several indices and none of them is its write index",
          types="illegal_argument_exception", starts=r"no write index is defined for alias"),
    _rule("shard limit", Reason.ES_CONFIG, "the cluster may not open more shards",
          types="illegal_argument_exception validation_exception", starts=r"(Validation Failed: 1: )?this action would add \["),
    _rule("data stream", Reason.ES_CONFIG, "the target is a data stream, which takes no versions: use an index",
          types="illegal_argument_exception", starts=r"only write ops with an op_type of create are allowed in data streams"),
    _rule("pipeline", Reason.ES_CONFIG, "the index names an ingest pipeline that does not exist",
          types="illegal_argument_exception", starts=r"pipeline with id \["),
    _rule("pressure", Reason.ES_429, "Elasticsearch is overloaded, or this document alone is too much for it",
          types="es_rejected_execution_exception circuit_breaking_exception"),
    _rule("routing missing", Reason.ES_REJECTED_DOCUMENT, "the mapping demands a routing and the event has none",
          status="400", types="routing_missing_exception"),
    # 500 on 8.14 for a source that is no object, 400 on 9.4: the same document's fault.
    _rule("not an object", Reason.ES_REJECTED_DOCUMENT, "the document is not a JSON object",
          types="not_x_content_exception"),
    _rule("document", Reason.ES_REJECTED_DOCUMENT, "this document does not fit the mapping or a limit: correct it or the mapping, then replay",
          status="400",
          types="document_parsing_exception mapper_parsing_exception strict_dynamic_mapping_exception mapper_exception"
          " illegal_argument_exception action_request_validation_exception x_content_parse_exception"
          " x_content_e_o_f_exception parsing_exception parse_exception json_parse_exception json_e_o_f_exception"
          " number_format_exception date_time_parse_exception input_coercion_exception stream_constraints_exception"
          " max_bytes_length_exceeded_exception array_index_out_of_bounds_exception version_conflict_engine_exception"),
    _rule("unavailable", Reason.ES_5XX, "the shard, its node or the master is not there now",
          types="unavailable_shards_exception no_shard_available_action_exception node_closed_exception"
          " node_not_connected_exception node_disconnected_exception master_not_discovered_exception"
          " not_master_exception process_cluster_event_timeout_exception receive_timeout_transport_exception"
          " index_shard_closed_exception already_closed_exception shard_not_in_primary_mode_exception"
          " primary_missing_action_exception retry_on_primary_exception no_node_available_exception"
          " illegal_index_shard_state_exception timeout_exception connect_transport_exception"
          " failed_to_commit_cluster_state_exception", away=True),
)  # fmt: skip
_BY_STATUS: Final[tuple[Rule, ...]] = (
    _rule("too large", Reason.TOO_LARGE, "this document alone is over http.max_content_length or a proxy's limit", status="413"),
    _rule("forbidden", Reason.ES_AUTH, "the server or a proxy forbids this request", status="403"),
    _rule("throttled", Reason.ES_429, "too many requests", status="429"),
    _rule("request timeout", Reason.TIMEOUT, "the server or a proxy gave up waiting", status="408"),
    _rule("server away", Reason.ES_5XX, "the server or a proxy has no answer now", status="502 503 504", away=True),
)  # fmt: skip
_UNKNOWN: Final = Rule("unknown", Reason.UNKNOWN, "no rule knows this answer: tried again up to the limit, and counted")
_NO_TYPE: Final = Rule("server error", Reason.ES_5XX, "the server failed and gave no type of error", frozenset({500}))
_OUR_REQUEST: Final = Rule(
    "our request", Reason.ES_CONFIG, "the whole request was refused: a bug or a setting, never the rows"
)

# At the end, because an id may hold the same words.
_CURRENT: Final = re.compile(r"current version \[(\d+)\] is higher (?:than|or equal to) the one provided \[\d+\]\Z")


def classify_item(op: str, item: Mapping[str, Any], report: Report | None = None) -> Outcome:
    """What one item of a bulk reply means: `{"status": ..., "error": ...}`; `op` is the action word sent."""
    return _explain_item(op, item.get("status"), item.get("error"), report).outcome


def classify_request(
    status: int, body: object, headers: Mapping[str, str], report: Report | None = None
) -> RequestVerdict:
    """What an HTTP error on the whole request means. Only validation and size are ever blamed on a document."""
    rule, failure = _refused(status, body, headers, report)
    if rule.name == "too large" or (rule.name == "document" and _type(_error_of(body)) == _VALIDATION):
        return Split(failure)
    return failure


_VALIDATION: Final = "action_request_validation_exception"


def explain(status: int, error: object, op: str = "index") -> Explanation:
    """How an item with this status and error is classified, and by which rule."""
    return _explain_item(op, status, error, None)


def explain_request(status: int, body: object) -> Explanation:
    """How a refusal of the whole request is classified."""
    rule, failure = _refused(status, body, {}, None)
    return Explanation(rule.name, failure, rule.why)


def _explain_item(op: str, status: object, error: object, report: Report | None) -> Explanation:
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
    if rule is _UNKNOWN and report is not None:
        report(status, _type(error) or "none")
    return Explanation(rule.name, _failure(rule, status, error, whole=rule.away), rule.why)


def find(status: int, error: object) -> Rule:
    """The rule that decides: the outermost known cause first, then the status alone."""
    for cause in causes(error):
        error_type, text = str(cause.get("type") or ""), str(cause.get("reason") or "")
        for rule in RULES:
            if rule.fits(status, error_type, text):
                return rule
    for rule in (RULES[0], *_BY_STATUS):
        if rule.fits(status, "", ""):
            return rule
    return _NO_TYPE if status == 500 and not _type(error) else _UNKNOWN


def _refused(status: int, body: object, headers: Mapping[str, str], report: Report | None) -> tuple[Rule, Failure]:
    error = _error_of(body)
    rule = find(status, error)
    if rule.name in ("document", "not an object", "routing missing") and _type(error) != _VALIDATION:
        rule = _OUR_REQUEST
    if rule is _UNKNOWN and (status < 500 or status == 501):
        rule = _OUR_REQUEST
    elif rule is _UNKNOWN and report is not None:
        report(status, _type(error) or "none")
    told = error or f"HTTP {status} with a body of type {headers.get('content-type') or 'none'}"
    return rule, _failure(rule, status, told, whole=rule.reason is not Reason.TOO_LARGE)


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
    text = summary(error)
    invalid = rule.reason in (Reason.ES_REJECTED_DOCUMENT, Reason.TOO_LARGE)
    return Failure(
        reason=rule.reason,
        error=f"{status} {text}" if text else str(status),
        code=Code.PAYLOAD_INVALID if invalid else Code.EXECUTION_FAILED,
        fingerprint=_print_of(rule.reason, text),
        detail={"status": status, "rule": rule.name, "error": detail(error)} if error else None,
        whole=whole,
    )


@lru_cache(maxsize=1024)  # an outage brings the same text for every row
def _print_of(reason: Reason, text: str) -> str:
    return fingerprint(reason, text)


def _error_of(body: object) -> object:
    """Elasticsearch says `{"error": {...}}`; some old routes say `{"error": "text"}`; proxies say anything."""
    return body.get("error") if isinstance(body, Mapping) else None


def _type(error: object) -> str:
    return str(error.get("type") or "") if isinstance(error, Mapping) else ""


def _current(error: object) -> int | None:
    for text in _reasons(error):
        if found := _CURRENT.search(text):
            return int(found[1])
    return None


def _reasons(error: object) -> Iterator[str]:
    return (str(cause.get("reason") or "") for cause in causes(error))
