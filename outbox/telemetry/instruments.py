"""Declares every metric with its fixed label values, each starting at 0. It changes none of them."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.utils import floatToGoString

from outbox.policy.outcome import FailureClass, Reason

OTHER: Final = "other"
REASONS: Final = (*(str(reason) for reason in Reason), OTHER)
PAUSE_CAUSES: Final = (
    "operator",
    *(str(reason) for reason in Reason if reason.failure_class is not FailureClass.DETERMINISTIC),
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

AGE_TEXT: Final = "From created_at to the reply of Elasticsearch, for events done at the first attempt"

M = TypeVar("M", bound=MetricWrapperBase)


class Closed(dict[str, M]):
    """One metric by label value. A value that is not in the list counts as `other`, where there is one."""

    def __missing__(self, value: str) -> M:
        if value == OTHER:
            raise KeyError(value)
        return self[OTHER]


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


@dataclass(frozen=True, slots=True)
class _Declared:
    """A metric that is made with each `Instruments`, under the name of its attribute."""

    make: Callable[[str, "Instruments"], object]


def _one(kind: Callable[..., M], text: str, **options: Any) -> M:
    return cast(M, _Declared(lambda name, own: own.whole(kind, name, text, **options).labels(own.projection)))


def _many(kind: Callable[..., M], text: str, label: str, values: Iterable[str] | None = None) -> Closed[M]:
    """One metric by label value; without `values` they are known only at the start."""
    return cast(Closed[M], _Declared(lambda name, own: own.by_label(kind, name, text, label, values)))


def _per(label: str, text: str) -> Gauge:
    """Labels that are known later: numbers of partitions, whose series come and go, and a limited number of types."""
    return cast(Gauge, _Declared(lambda name, own: own.whole(Gauge, name, text, label)))


class Instruments:
    """Attributes have the names of their metrics, without `outbox_` and `_total`."""

    lag_events = _one(Gauge, "Events pending or processing")
    oldest_age_seconds = _one(Gauge, "Age of the oldest pending or processing event")
    inflight_events = _one(Gauge, "Events in processing, over all workers")
    stuck_processing_events = _one(Gauge, "Events in processing with an expired lease or for too long")
    due_events = _one(Gauge, "Events that could be claimed now")
    failed_events = _many(Gauge, "Events that are failed now", "reason", REASONS)
    lane_lag_events = _per("entity_type", "Events pending or processing, by type")
    lane_oldest_age_seconds = _per("entity_type", "Age of the oldest pending or processing event, by type")
    fanouts_open = _one(Gauge, "Fan-outs pending or processing")
    fanout_refreshes_open = _one(Gauge, "Refreshes pending or processing that fan-outs wrote")
    fanout_refreshes = _one(Counter, "Refreshes that fan-outs wrote")
    sample_timestamp_seconds = _one(Gauge, "Time of the last sample of the backlog gauges")

    processed = _one(Counter, "Events done: written, superseded or missing")
    failed = _one(Counter, "Failed attempts, whether retried later or not")
    retry_scheduled = _one(Counter, "Failed attempts that will be retried")
    terminal_failed = _many(Counter, "Events that became failed", "reason", REASONS)
    idempotent_noop = _many(Counter, "Events done without a change to the index", "why", NOOPS)
    version_raised = _one(Counter, "Times the version sequence was raised above the versions of an index")
    reclaimed = _one(Counter, "Events reclaimed from expired leases")
    lease_lost = _one(Counter, "Events whose lease was lost before their settle")
    no_progress_batches = _many(Counter, "Claimed batches of which nothing was sent or settled", "reason", NO_PROGRESS)
    last_success_timestamp_seconds = _one(Gauge, "Time when an event was last done; 0 = not since the start")
    claim_duration_seconds = _one(Histogram, "Duration of one claim", buckets=STATEMENT_SECONDS)
    settle_duration_seconds = _one(Histogram, "Duration of one settle", buckets=STATEMENT_SECONDS)
    event_latency_seconds = cast(AgeHistogram, _Declared(lambda name, own: own.ages(name, AGE_TEXT)))

    es_bulk_requests = _many(Counter, "Bulk requests", "result", REQUEST_RESULTS)
    es_bulk_items = _many(Counter, "Items of bulk requests", "result", ITEM_RESULTS)
    es_bulk_item_failures = _many(Counter, "Items not accepted", "failure_class", FAILURE_CLASSES)
    es_bulk_request_duration_seconds = _one(
        Histogram, "Duration of one bulk request, connect to last byte", buckets=REQUEST_SECONDS
    )
    es_bulk_bytes = _one(Histogram, "Size of one bulk request", buckets=REQUEST_BYTES)
    batch_limit = _one(Gauge, "Current adaptive limit of items per batch")
    paused = _many(Gauge, "Targets or entity types that are paused now", "cause", PAUSE_CAUSES)
    braked_fingerprints = _one(Gauge, "Error fingerprints that are braked now")
    unclassified = _one(Counter, "Replies that no classification rule knows")
    es_node_up = _many(Gauge, "Whether this node is in use; 0 = left out because it does not answer", "node")

    replayed = _many(Counter, "Events replayed by a person", "source", REPLAY_SOURCES)
    replay_results = _many(Counter, "Replayed events by how they ended", "result", REPLAY_RESULTS)
    webhook_deliveries = _many(Counter, "Attempts to deliver a webhook", "result", WEBHOOK_RESULTS)
    pruned = _many(Counter, "Rows pruned", "table", PRUNED_TABLES)
    prune_timestamp_seconds = _one(
        Gauge, "Time of the last pruning pass that left nothing due; 0 = not since the start"
    )
    drift_documents = _many(Gauge, "Documents that differed in the last verify", "kind", DRIFT_KINDS)
    verify_timestamp_seconds = _one(Gauge, "Time when verify last ended; 0 = never")

    stream_lag_records = _per("partition", "Records of a partition of this worker that are not settled")
    stream_oldest_age_seconds = _per("partition", "Age of the oldest record of a partition that is not settled")
    stream_partitions = _one(Gauge, "Partitions that this worker has")
    stream_resting_partitions = _one(Gauge, "Partitions that rest, because too many of their events are open")
    stream_gaps = _one(Counter, "Times that records were gone before they were read")
    stream_gap_records = _one(Counter, "Records that were gone before they were read")
    stream_revoked_records = _one(Counter, "Records in flight whose partition went to another worker")
    stream_empty_records = _one(Counter, "Records without value and headers, which compaction leaves: they pass")
    stream_commits_refused = _one(Counter, "Commits that Kafka did not take")

    def __init__(self, projection: str, registry: CollectorRegistry, nodes: Sequence[str] = ()) -> None:
        """A single node has no series: nothing else could take its requests, and the bulk requests show how it is."""
        self.projection = projection
        self._registry = registry
        self._values = {"node": tuple(nodes) if len(nodes) > 1 else ()}
        for name, declared in vars(Instruments).items():
            if isinstance(declared, _Declared):
                setattr(self, name, declared.make(name, self))
        for node in self.es_node_up:
            self.es_node_up[node].set(1)
        self._slot = {name: self.whole(Gauge, f"slot_{name}", text) for name, text in SLOT.items()}

    def whole(self, kind: Callable[..., M], name: str, text: str, *labels: str, **options: Any) -> M:
        return kind(f"outbox_{name}", text, ("projection", *labels), registry=self._registry, **options)

    def by_label(
        self, kind: Callable[..., M], name: str, text: str, label: str, values: Iterable[str] | None
    ) -> Closed[M]:
        whole = self.whole(kind, name, text, label)
        given = self._values[label] if values is None else values
        return Closed({value: whole.labels(self.projection, value) for value in given})

    def ages(self, name: str, text: str) -> AgeHistogram:
        made = AgeHistogram(f"outbox_{name}", text, self.projection)
        self._registry.register(made)
        return made

    def stream_sample(
        self, lag: Mapping[int, int], oldest_age_seconds: Mapping[int, float], resting: int, empty: int
    ) -> None:
        self.stream_resting_partitions.set(resting)
        self.stream_empty_records.inc(empty)
        for partition, records in lag.items():
            self.stream_lag_records.labels(self.projection, str(partition)).set(records)
            age = oldest_age_seconds.get(partition, 0.0)
            self.stream_oldest_age_seconds.labels(self.projection, str(partition)).set(age)
        self.stream_partitions.set(len(lag))

    def forget_partitions(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for gauge in (self.stream_lag_records, self.stream_oldest_age_seconds):
                with suppress(KeyError):
                    gauge.remove(self.projection, str(partition))

    def slot_sample(self, values: Mapping[str, float | None]) -> None:
        """Without a value there is no series: 0 would say that the slot is lost, or the connector down."""
        for name, gauge in self._slot.items():
            number = values.get(name)
            if number is None:
                with suppress(KeyError):
                    gauge.remove(self.projection)
            else:
                gauge.labels(self.projection).set(number)

    def build_info(self, version: str, python: str) -> None:
        whole = self.whole(Gauge, "build_info", "Version of the program; always 1", "version", "python")
        whole.labels(self.projection, version, python).set(1)
