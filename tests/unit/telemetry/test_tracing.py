"""Spans made from facts, seen through the SDK's in-memory exporter."""

from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from outbox.facts import BatchClaimed, BatchSettled, BulkSent
from outbox.telemetry import tracing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GOOD = f"00-{TRACE}-00f067aa0ba902b7-01"
NOW = 1_000_000_000_000


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("outbox.telemetry.tracing.trace.get_tracer", provider.get_tracer)
    return exporter


def settled(done: int = 2, failed: int = 0) -> BatchSettled:
    return BatchSettled(uuid4(), 0, done, 0, 0, failed, 0, 0, 0, 1.0, 0.1)


def bulk(result: str = "ok") -> BulkSent:
    return BulkSent(result, {"written": 2, "failed": 0}, {}, 900, 0.5, "articles")


def test_a_batch_is_one_span_linked_to_its_producers_with_the_bulk_request_inside(
    exporter: InMemorySpanExporter,
) -> None:
    spans = tracing.Tracing("p", now_ns=lambda: NOW)

    spans.handle(BatchClaimed(uuid4(), 0, 2, 0.25, traceparents=[GOOD, GOOD]))
    spans.handle(bulk())
    spans.handle(settled())

    request, batch = exporter.get_finished_spans()
    assert (batch.name, request.name) == ("outbox.batch", "elasticsearch.bulk")
    assert request.parent is not None
    assert request.parent.span_id == batch.context.span_id
    assert [format(link.context.trace_id, "032x") for link in batch.links] == [TRACE]
    assert (batch.attributes or {})["outbox.done"] == 2
    assert batch.start_time == NOW - 250_000_000
    assert request.start_time == NOW - 500_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",  # nothing
        "garbage",  # not of the form
        GOOD.replace("00-", "ff-", 1),  # a version that is not allowed
        f"00-{'0' * 32}-00f067aa0ba902b7-01",  # no trace
        f"00-{TRACE}-{'0' * 16}-01",  # no span
        GOOD.upper(),  # must be lower case
        "x" * 10_000,  # long
    ],
)
def test_a_malformed_traceparent_is_ignored(text: str) -> None:
    assert [format(link.context.trace_id, "032x") for link in tracing.links([text, GOOD])] == [TRACE]
