"""Turns facts into OpenTelemetry spans: one per batch, linked to its producers' traces, and one per bulk request.

Costs nothing without an SDK: then it is not subscribed. It sets up no SDK: `opentelemetry-instrument` does.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Link, ProxyTracerProvider, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from outbox.facts import BatchClaimed, BatchSettled, BulkSent, Fact, SinkIdentified

MOST_LINKS: Final = 128  # the SDK's own limit: it drops more
# version 00: two hex digits, trace id, span id, flags; anything else is ignored.
_TRACEPARENT: Final = re.compile(
    r"^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-|$)"
)


def is_set_up() -> bool:
    """Whether an SDK is installed in this process."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider | trace.NoOpTracerProvider)


class _Batch(threading.local):
    """Facts of one batch come from one lane, which is one thread."""

    span: Span | None = None


class Tracing:
    def __init__(self, projection: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._tracer = trace.get_tracer("outbox")
        self._projection = projection
        self._now_ns = now_ns
        self._batch = _Batch()
        self._product = "elasticsearch"  # until the sink is identified

    def handle(self, fact: Fact) -> None:
        match fact:
            case SinkIdentified():
                self._product = fact.product
            case BatchClaimed():
                self._claimed(fact)
            case BulkSent():
                self._bulk(fact)
            case BatchSettled():
                self._settled(fact)

    def _claimed(self, fact: BatchClaimed) -> None:
        self._end()  # a batch that was aborted announces no end
        self._batch.span = self._tracer.start_span(
            "outbox.batch",
            kind=SpanKind.CONSUMER,
            attributes={
                "outbox.projection": self._projection,
                "outbox.batch": str(fact.token),
                "outbox.claimed": fact.count,
            },
            links=list(links(fact.traceparents)),
            start_time=self._ago(fact.duration_seconds),
        )

    def _bulk(self, fact: BulkSent) -> None:
        parent = self._batch.span
        span = self._tracer.start_span(
            "elasticsearch.bulk",
            context=None if parent is None else trace.set_span_in_context(parent),
            kind=SpanKind.CLIENT,
            attributes={
                "db.system.name": self._product,
                "db.operation.name": "bulk",
                "db.collection.name": fact.target,
                "outbox.bulk.bytes": fact.size_bytes,
                "outbox.bulk.result": fact.result,
                "outbox.bulk.failed": fact.items.get("failed", 0),
            },
            start_time=self._ago(fact.duration_seconds),
        )
        if fact.result != "ok":
            span.set_status(Status(StatusCode.ERROR, fact.result))
        span.end(self._now_ns())

    def _settled(self, fact: BatchSettled) -> None:
        span = self._batch.span
        if span is not None:
            counts = {"done": fact.done, "retried": fact.retried, "released": fact.released, "failed": fact.failed}
            span.set_attributes({f"outbox.{name}": n for name, n in {**counts, "lost": fact.lost}.items()})
            if fact.failed or fact.retried:
                span.set_status(Status(StatusCode.ERROR, "not every event was accepted"))
        self._end()

    def _end(self) -> None:
        if self._batch.span is not None:
            self._batch.span.end(self._now_ns())
            self._batch.span = None

    def _ago(self, seconds: float) -> int:
        return self._now_ns() - int(seconds * 1e9)


def links(traceparents: Iterable[str]) -> Iterator[Link]:
    """One link per producer's trace, at most the SDK's limit; malformed ones are skipped."""
    seen: set[str] = set()
    for text in traceparents:
        found = _TRACEPARENT.match(text)
        if found and text not in seen and len(seen) < MOST_LINKS:
            seen.add(text)
            trace_id, span_id, flags = (int(part, 16) for part in found.groups()[:3])
            yield Link(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags)))
