"""Declares every metric with its fixed label values, each starting at 0. It changes none of them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.utils import floatToGoString

from outbox.policy.outcome import CLASS_OF, FailureClass, Reason

OTHER: Final = "other"
REASONS: Final = (*(str(reason) for reason in Reason), OTHER)
PAUSE_CAUSES: Final = (
    "operator",
    *(str(reason) for reason in Reason if CLASS_OF[reason] is not FailureClass.DETERMINISTIC),
    OTHER,
)
NOOPS: Final = ("superseded", "missing", "ahead")
REQUEST_RESULTS: Final = ("ok", "partial", "refused", "unknown")
ITEM_RESULTS: Final = ("written", "missing", "stale", "failed")
FAILURE_CLASSES: Final = tuple(str(failure_class) for failure_class in FailureClass)
NO_PROGRESS: Final = ("lease_short", "half_spent", "lease_lost", "database", "error", "unknown", OTHER)
REPLAY_SOURCES: Final = ("cli", "api", "console", "daemon", OTHER)
REPLAY_RESULTS: Final = ("done", "failed_again")
WEBHOOK_RESULTS: Final = ("delivered", "failed", "given_up")
PRUNED_TABLES: Final = (
    "search_outbox_events",
    "search_outbox_attempts",
    "search_outbox_audit",
    "search_outbox_replays",
    "search_outbox_rollup",
    "search_outbox_webhook_deliveries",
    "search_outbox_workers",
    OTHER,
)
DRIFT_KINDS: Final = ("missing", "stale", "orphaned", "different", "unknown")
SLOT: Final = {
    "active": "Whether the connector reads from its replication slot; 0 = it does not, or there is no slot",
    "kept_bytes": "Write-ahead log that PostgreSQL keeps for the slot",
    "unread_bytes": "Write-ahead log that the connector has not confirmed yet",
    "safe_bytes": "Write-ahead log that may still be written before the slot is lost; 0 or less = it is, or will be",
}

STATEMENT_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# 30 s is the objective of the burn-rate alerts, so it must be a bound.
AGE_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
REQUEST_BYTES: Final = (1e3, 1e4, 1e5, 5e5, 1e6, 2e6, 4e6, 8e6, 16e6, 32e6, 64e6)

M = TypeVar("M", bound=MetricWrapperBase)


class Closed(Generic[M]):
    """One metric by label value. A value that is not in the list counts as `other`."""

    def __init__(self, children: Mapping[str, M]) -> None:
        self._children = children

    def __getitem__(self, value: str) -> M:
        child = self._children.get(value)
        return self._children[OTHER] if child is None else child

    def __contains__(self, value: str) -> bool:
        return value in self._children

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)


class AgeHistogram:
    """Takes all ages of a batch at once: sorts them and cuts them at the bounds.

    0.06 us per age for 500 ages; prometheus_client's `observe` takes 1.9 us.
    """

    def __init__(self, name: str, text: str, projection: str, bounds: Sequence[float] = AGE_SECONDS) -> None:
        self._name = name
        self._text = text
        self._projection = projection
        self.bounds = tuple(bounds)
        self._at_most = [0] * (len(self.bounds) + 1)  # cumulative, as the exposition wants it; last = all
        self._sum = 0.0
        self._lock = Lock()

    def observe_all(self, ages: Sequence[float]) -> None:
        if not ages:
            return
        ordered = sorted(ages)
        if ordered[0] < 0:  # a producer's clock is ahead of the database's; a sum must never decrease
            ordered = sorted(max(age, 0.0) for age in ages)
        added = [bisect_right(ordered, bound) for bound in self.bounds]
        added.append(len(ordered))
        total = sum(ordered)
        with self._lock:
            self._at_most = [old + new for old, new in zip(self._at_most, added, strict=True)]
            self._sum += total

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._text, labels=("projection",))]

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            counts, total = self._at_most, self._sum
        bounds = [*map(floatToGoString, self.bounds), "+Inf"]
        family = HistogramMetricFamily(self._name, self._text, labels=("projection",))
        buckets = [(bound, float(count)) for bound, count in zip(bounds, counts, strict=True)]
        family.add_metric([self._projection], buckets=buckets, sum_value=total)
        return [family]


class Instruments:
    """Attributes have the names of their metrics, without `outbox_` and `_total`."""

    def __init__(
        self, projection: str, registry: CollectorRegistry, entity_types: Iterable[str], nodes: Sequence[str] = ()
    ) -> None:
        self._projection = projection
        self._registry = registry
        lanes = tuple(dict.fromkeys((*entity_types, OTHER)))
        self._declare_backlog(lanes)
        self._declare_outcomes()
        self._declare_elasticsearch()
        self._declare_nodes(nodes)
        self._declare_operations()
        self._declare_stream()

    def _declare_backlog(self, lanes: tuple[str, ...]) -> None:
        gauge, gauges = self._gauge, self._gauges
        self.lag_events = gauge("lag_events", "Events pending or processing")
        self.oldest_age_seconds = gauge("oldest_age_seconds", "Age of the oldest pending or processing event")
        self.inflight_events = gauge("inflight_events", "Events in processing, over all workers")
        self.stuck_processing_events = gauge(
            "stuck_processing_events",
            "Events in processing with an expired lease or for too long",
        )
        self.due_events = gauge("due_events", "Events that could be claimed now")
        self.failed_events = gauges("failed_events", "Events that are failed now", "reason", REASONS)
        self.lane_lag_events = gauges("lane_lag_events", "Events pending or processing, by type", "entity_type", lanes)
        self.lane_oldest_age_seconds = gauges(
            "lane_oldest_age_seconds",
            "Age of the oldest pending or processing event, by type",
            "entity_type",
            lanes,
        )
        self.sample_timestamp_seconds = gauge(
            "sample_timestamp_seconds", "Time of the last sample of the backlog gauges"
        )

    def _declare_outcomes(self) -> None:
        counter, counters, gauge = self._counter, self._counters, self._gauge
        self.processed = counter("processed", "Events done: written, superseded or missing")
        self.failed = counter("failed", "Failed attempts, whether retried later or not")
        self.retry_scheduled = counter("retry_scheduled", "Failed attempts that will be retried")
        self.terminal_failed = counters("terminal_failed", "Events that became failed", "reason", REASONS)
        self.idempotent_noop = counters("idempotent_noop", "Events done without a change to the index", "why", NOOPS)
        self.version_raised = counter(
            "version_raised", "Times the version sequence was raised above the versions of an index"
        )
        self.reclaimed = counter("reclaimed", "Events reclaimed from expired leases")
        self.lease_lost = counter("lease_lost", "Events whose lease was lost before their settle")
        self.no_progress_batches = counters(
            "no_progress_batches", "Claimed batches of which nothing was sent or settled", "reason", NO_PROGRESS
        )
        self.last_success_timestamp_seconds = gauge(
            "last_success_timestamp_seconds", "Time when an event was last done; 0 = not since the start"
        )
        self.claim_duration_seconds = self._histogram(
            "claim_duration_seconds", "Duration of one claim", STATEMENT_SECONDS
        )
        self.settle_duration_seconds = self._histogram(
            "settle_duration_seconds", "Duration of one settle", STATEMENT_SECONDS
        )
        self.event_latency_seconds = AgeHistogram(
            "outbox_event_latency_seconds",
            "From created_at to the reply of Elasticsearch, for events done at the first attempt",
            self._projection,
        )
        self._registry.register(self.event_latency_seconds)

    def _declare_elasticsearch(self) -> None:
        counters, gauge, histogram = self._counters, self._gauge, self._histogram
        self.es_bulk_requests = counters("es_bulk_requests", "Bulk requests", "result", REQUEST_RESULTS)
        self.es_bulk_items = counters("es_bulk_items", "Items of bulk requests", "result", ITEM_RESULTS)
        self.es_bulk_item_failures = counters(
            "es_bulk_item_failures", "Items not accepted", "failure_class", FAILURE_CLASSES
        )
        self.es_bulk_request_duration_seconds = histogram(
            "es_bulk_request_duration_seconds", "Duration of one bulk request, connect to last byte", REQUEST_SECONDS
        )
        self.es_bulk_bytes = histogram("es_bulk_bytes", "Size of one bulk request", REQUEST_BYTES)
        self.batch_limit = gauge("batch_limit", "Current adaptive limit of items per batch")
        self.paused = self._gauges("paused", "Targets or entity types that are paused now", "cause", PAUSE_CAUSES)
        self.braked_fingerprints = gauge("braked_fingerprints", "Error fingerprints that are braked now")
        self.unclassified = self._counter("unclassified", "Replies that no classification rule knows")

    def _declare_nodes(self, nodes: Sequence[str]) -> None:
        """A single one has no series: nothing else could take its requests, and the bulk requests show how it is."""
        several = nodes if len(nodes) > 1 else ()
        text = "Whether this node is in use; 0 = left out because it does not answer"
        self.es_node_up = self._gauges("es_node_up", text, "node", several)
        for node in several:
            self.es_node_up[node].set(1)

    def _declare_stream(self) -> None:
        """Partitions come and go: their series do too. A number of the topic is no value of a row."""
        labels = ("projection", "partition")
        lag = "Records of a partition of this worker that are not settled"
        self.stream_lag_records = Gauge("outbox_stream_lag_records", lag, labels, registry=self._registry)
        age = "Age of the oldest record of a partition that is not settled"
        self.stream_oldest_age_seconds = Gauge("outbox_stream_oldest_age_seconds", age, labels, registry=self._registry)
        self.stream_partitions = self._gauge("stream_partitions", "Partitions that this worker has")
        self.stream_gaps = self._counter("stream_gaps", "Times that records were gone before they were read")
        self.stream_gap_records = self._counter("stream_gap_records", "Records that were gone before they were read")
        self.stream_revoked_records = self._counter(
            "stream_revoked_records", "Records in flight whose partition went to another worker"
        )
        self.stream_commits_refused = self._counter("stream_commits_refused", "Commits that Kafka did not take")
        self._slot = {name: self._whole(f"slot_{name}", text) for name, text in SLOT.items()}

    def stream_sample(self, lag: Mapping[int, int], oldest_age_seconds: Mapping[int, float]) -> None:
        for partition, records in lag.items():
            self.stream_lag_records.labels(self._projection, str(partition)).set(records)
            age = oldest_age_seconds.get(partition, 0.0)
            self.stream_oldest_age_seconds.labels(self._projection, str(partition)).set(age)
        self.stream_partitions.set(len(lag))

    def forget_partitions(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for gauge in (self.stream_lag_records, self.stream_oldest_age_seconds):
                with suppress(KeyError):
                    gauge.remove(self._projection, str(partition))

    def slot_sample(self, values: Mapping[str, float | None]) -> None:
        """Without a value there is no series: 0 would say that the slot is lost, or the connector down."""
        for name, gauge in self._slot.items():
            number = values.get(name)
            if number is None:
                with suppress(KeyError):
                    gauge.remove(self._projection)
            else:
                gauge.labels(self._projection).set(number)

    def _declare_operations(self) -> None:
        counters, gauge = self._counters, self._gauge
        self.replayed = counters("replayed", "Events replayed by a person", "source", REPLAY_SOURCES)
        self.replay_results = counters("replay_results", "Replayed events by how they ended", "result", REPLAY_RESULTS)
        self.webhook_deliveries = counters(
            "webhook_deliveries", "Attempts to deliver a webhook", "result", WEBHOOK_RESULTS
        )
        self.pruned = counters("pruned", "Rows pruned", "table", PRUNED_TABLES)
        self.prune_timestamp_seconds = gauge(
            "prune_timestamp_seconds", "Time of the last pruning pass that left nothing due; 0 = not since the start"
        )
        self.drift_documents = self._gauges(
            "drift_documents", "Documents that differed in the last verify", "kind", DRIFT_KINDS
        )
        self.verify_timestamp_seconds = gauge("verify_timestamp_seconds", "Time when verify last ended; 0 = never")

    def build_info(self, version: str, python: str) -> None:
        name, text = "outbox_build_info", "Version of the program; always 1"
        labels = ("projection", "version", "python")
        Gauge(name, text, labels, registry=self._registry).labels(self._projection, version, python).set(1)

    def _counter(self, name: str, text: str) -> Counter:
        return self._one(Counter, f"{name}_total", text)

    def _gauge(self, name: str, text: str) -> Gauge:
        return self._one(Gauge, name, text)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        whole = Histogram(f"outbox_{name}", text, ("projection",), buckets=buckets, registry=self._registry)
        return whole.labels(self._projection)

    def _counters(self, name: str, text: str, label: str, values: Iterable[str]) -> Closed[Counter]:
        return self._many(Counter, f"{name}_total", text, label, values)

    def _gauges(self, name: str, text: str, label: str, values: Iterable[str]) -> Closed[Gauge]:
        return self._many(Gauge, name, text, label, values)

    def _whole(self, name: str, text: str) -> Gauge:
        """Without its series, which come and go."""
        return Gauge(f"outbox_{name}", text, ("projection",), registry=self._registry)

    def _one(self, kind: Callable[..., M], name: str, text: str) -> M:
        return kind(f"outbox_{name}", text, ("projection",), registry=self._registry).labels(self._projection)

    def _many(self, kind: Callable[..., M], name: str, text: str, label: str, values: Iterable[str]) -> Closed[M]:
        whole = kind(f"outbox_{name}", text, ("projection", label), registry=self._registry)
        return Closed({value: whole.labels(self._projection, value) for value in values})
