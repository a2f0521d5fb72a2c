"""What the sink may answer for one document, and the closed lists of reasons. Decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self


class FailureClass(StrEnum):
    TRANSIENT = "transient"
    DETERMINISTIC = "deterministic"
    SYSTEMIC = "systemic"


class Reason(StrEnum):
    """`error_reason`: what went wrong, from a closed list; its class, and the coarse kind that people filter by."""

    failure_class: FailureClass
    failure_type: str

    def __new__(cls, name: str, failure_class: FailureClass, failure_type: str) -> Self:
        made = str.__new__(cls, name)
        made._value_, made.failure_class, made.failure_type = name, failure_class, failure_type
        return made

    CONNECT = "connect", FailureClass.TRANSIENT, "network"
    TIMEOUT = "timeout", FailureClass.TRANSIENT, "timeout"
    ES_429 = "es_429", FailureClass.TRANSIENT, "throttled"
    ES_5XX = "es_5xx", FailureClass.TRANSIENT, "network"
    UNKNOWN = "unknown_exception", FailureClass.TRANSIENT, "unknown"
    ES_AUTH = "es_auth", FailureClass.SYSTEMIC, "config"
    ES_INDEX_MISSING = "es_index_missing", FailureClass.SYSTEMIC, "config"
    ES_BLOCKED = "es_blocked", FailureClass.SYSTEMIC, "config"
    ES_CONFIG = "es_config", FailureClass.SYSTEMIC, "config"
    DOCUMENTS_UNAVAILABLE = "documents_unavailable", FailureClass.SYSTEMIC, "config"
    ES_REJECTED_DOCUMENT = "es_rejected_document", FailureClass.DETERMINISTIC, "document"
    TOO_LARGE = "too_large", FailureClass.DETERMINISTIC, "document"
    DETERMINISTIC = "deterministic_exception", FailureClass.DETERMINISTIC, "document"
    CRASH_SUSPECT = "crash_suspect", FailureClass.DETERMINISTIC, "unknown"


class Code(StrEnum):
    """`error_code`: which layer is at fault."""

    EXECUTION_FAILED = "OUTBOX_EXECUTION_FAILED"
    PAYLOAD_INVALID = "OUTBOX_PAYLOAD_INVALID"
    PAYLOAD_UNSUPPORTED = "OUTBOX_PAYLOAD_UNSUPPORTED"
    PAYLOAD_MISSING = "OUTBOX_PAYLOAD_MISSING"
    ENTITY_NOT_FOUND = "OUTBOX_ENTITY_NOT_FOUND"
    PRECONDITION_FAILED = "OUTBOX_PRECONDITION_FAILED"


class DeadReason(StrEnum):
    NON_RETRYABLE = "non_retryable"
    MAX_ATTEMPTS_EXCEEDED = "max_attempts_exceeded"
    CRASH_SUSPECT = "crash_suspect"


@dataclass(frozen=True, slots=True)
class Written:
    """Elasticsearch has it: 200 or 201."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A delete of what is not there: 404 without an error. A tombstone holds our version now."""


@dataclass(frozen=True, slots=True)
class Stale:
    """409 on an external version that we sent: a newer one is there."""

    current: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Not accepted. `error` is redacted and short enough to store."""

    reason: Reason
    error: str
    code: Code = Code.EXECUTION_FAILED
    fingerprint: str | None = None
    detail: Mapping[str, Any] | None = None
    whole: bool = False  # the whole request met it, not this document
    shard: bool = False  # its shard, its node or the master is down: others of its request may have been taken
    contested: bool = False  # may be over in a moment, as another request's doing is: worth sending once more
    retry_after_seconds: float = 0.0  # what the server, or a proxy before it, asked for with `Retry-After`
    late: bool = False  # not in time (a new field, another primary): worth sending once more with more time
    moving: bool = False  # one of several nodes was going or coming, and another one answered
    second: bool = False  # only a rebuild's second index met it: the target itself has accepted

    @property
    def failure_class(self) -> FailureClass:
        return self.reason.failure_class

    @property
    def error_detail(self) -> Mapping[str, Any]:
        """What the reply said, or, where none was asked for or came, the same form with our own
        finding, so that every failed row has one."""
        return self.detail or detail_without_reply(self.reason, self.error)


def detail_without_reply(reason: Reason, error: str) -> Mapping[str, Any]:
    why = "judged before anything was sent, or no reply came"
    return {"rule": "none", "why": why, "error": {"type": str(reason), "reason": error}}


Accepted = Written | Missing | Stale
Outcome = Accepted | Failure
WRITTEN: Final = Written()
MISSING: Final = Missing()
