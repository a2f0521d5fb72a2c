"""Facts become metrics: every documented name, fixed labels, zero from the start, cheap on the hot path."""

from collections.abc import Mapping
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from outbox import facts
from outbox.policy.outcome import Reason
from outbox.telemetry.instruments import AgeHistogram
from outbox.telemetry.metrics import Metrics, new_registry

# All metrics: name -> labels in addition to `projection`.
CONTRACT = {
    "outbox_lag_events": (),
    "outbox_oldest_age_seconds": (),
    "outbox_inflight_events": (),
    "outbox_stuck_processing_events": (),
    "outbox_processed_total": (),
    "outbox_failed_total": (),
    "outbox_retry_scheduled_total": (),
    "outbox_terminal_failed_total": ("reason",),
    "outbox_failed_events": ("reason",),
    "outbox_idempotent_noop_total": ("why",),
    "outbox_reclaimed_total": (),
    "outbox_lease_lost_total": (),
    "outbox_version_raised_total": (),
    "outbox_no_progress_batches_total": ("reason",),
    "outbox_last_success_timestamp_seconds": (),
    "outbox_event_latency_seconds": ("le",),
    "outbox_es_bulk_requests_total": ("result",),
    "outbox_es_bulk_items_total": ("result",),
    "outbox_es_bulk_item_failures_total": ("failure_class",),
    "outbox_es_bulk_request_duration_seconds": ("le",),
    "outbox_es_bulk_bytes": ("le",),
    "outbox_es_node_up": ("node",),
    "outbox_batch_limit": (),
    "outbox_paused": ("cause",),
    "outbox_braked_fingerprints": (),
    "outbox_due_events": (),
    "outbox_claim_duration_seconds": ("le",),
    "outbox_settle_duration_seconds": ("le",),
    "outbox_unclassified_total": (),
    "outbox_replayed_total": ("source",),
    "outbox_replay_results_total": ("result",),
    "outbox_webhook_deliveries_total": ("result",),
    "outbox_pruned_total": ("table",),
    "outbox_prune_timestamp_seconds": (),
    "outbox_drift_documents": ("kind",),
    "outbox_verify_timestamp_seconds": (),
    "outbox_sample_timestamp_seconds": (),
    "outbox_fanouts_open": (),
    "outbox_fanout_refreshes_open": (),
    "outbox_fanout_refreshes_total": (),
    "outbox_build_info": ("version", "python"),
    "outbox_lane_lag_events": ("entity_type",),
    "outbox_lane_oldest_age_seconds": ("entity_type",),
    "outbox_stream_lag_records": ("partition",),
    "outbox_stream_oldest_age_seconds": ("partition",),
    "outbox_stream_partitions": (),
    "outbox_stream_resting_partitions": (),
    "outbox_stream_gaps_total": (),
    "outbox_stream_gap_records_total": (),
    "outbox_stream_revoked_records_total": (),
    "outbox_stream_empty_records_total": (),
    "outbox_stream_commits_refused_total": (),
    "outbox_slot_active": (),
    "outbox_slot_kept_bytes": (),
    "outbox_slot_unread_bytes": (),
    "outbox_slot_safe_bytes": (),
}
NOW = 1_700_000_000.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return new_registry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(
        "search_index_to_elastic",
        registry,
        ["article", "author"],
        wall_clock=lambda: NOW,
        nodes=("http://a", "http://b"),
    )


def samples(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset((k, v) for k, v in sample.labels.items() if k != "projection")): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("outbox_")
    }


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return samples(registry)[name, frozenset(labels.items())]


def settled(**counts: object) -> facts.BatchSettled:
    plain = dict.fromkeys(("done", "retried", "released", "failed", "superseded", "missing", "lost"), 0)
    times = {"duration_seconds": 0.02, "settle_seconds": 0.01}
    return facts.BatchSettled(**{"token": uuid4(), "lane": 0, **plain, **times, **counts})  # type: ignore[arg-type]


def backlog(**fields: object) -> facts.BacklogSampled:
    base = {
        "lag": 7,
        "oldest_age_seconds": 3.5,
        "inflight": 2,
        "stuck": 1,
        "due": 4,
        "failed": {},
        "lanes": {},
        "capped": False,
        "duration_seconds": 0.01,
    }
    return facts.BacklogSampled(**{**base, **fields})  # type: ignore[arg-type]


def test_the_metrics_are_those_of_the_contract(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.handle(facts.StreamSampled("events", {0: 0}, {0: 0.0}))  # its series come with the partitions
    metrics.handle(backlog_with(facts.SlotSample(active=True, kept_bytes=0, unread_bytes=0, safe_bytes=0)))
    found: dict[str, set[str]] = {}
    for name, labels in samples(registry):
        whole = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        found.setdefault(whole, set()).update(label for label, _ in labels)
    assert {name: set(labels) for name, labels in CONTRACT.items()} == found


def test_the_series_of_a_partition_go_when_it_goes(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.handle(facts.StreamSampled("events", {0: 12, 1: 7}, {0: 3.5, 1: 0.0}))
    assert value(registry, "outbox_stream_lag_records", partition="0") == 12
    assert value(registry, "outbox_stream_oldest_age_seconds", partition="0") == 3.5
    assert value(registry, "outbox_stream_partitions") == 2
    metrics.handle(facts.PartitionsRevoked("events", [0, 5], 40, lost=True))
    lags = {labels for name, labels in samples(registry) if name == "outbox_stream_lag_records"}
    assert lags == {frozenset({("partition", "1")})}
    assert value(registry, "outbox_stream_revoked_records_total") == 40


def backlog_with(slot: facts.SlotSample | None) -> facts.BacklogSampled:
    return facts.BacklogSampled(0, 0.0, 0, 0, 0, {}, {}, False, 0.0, slot)


def test_no_fact_adds_a_series(registry: CollectorRegistry, metrics: Metrics) -> None:
    """Nothing from a row ever becomes a label: 2,000 entity types, reasons and causes do not change the page. Only the
    types that were declared first do, up to their limit."""
    metrics.handle(backlog(lanes={f"declared-{n}": facts.TypeBacklog(1, 1.0, 1) for n in range(50)}))
    before = samples(registry).keys()
    for n in range(2_000):
        lane = facts.TypeBacklog(1, 1.0, 1)
        metrics.handle(settled(done=1, failed=1, by_type={(f"type-{n}", "failed", f"reason-{n}"): 1}))
        metrics.handle(backlog(lanes={f"type-{n}": lane}, failed={f"reason-{n}": 1}))
        metrics.handle(facts.SinkPaused(f"target-{n}", f"cause-{n}", ""))
        metrics.handle(facts.EventsReplayed(uuid4(), f"source-{n}", 1, 0, "alice"))
        metrics.handle(facts.TablePruned(f"table-{n}", 1, False, 0.1))
    assert samples(registry).keys() == before
    assert value(registry, "outbox_terminal_failed_total", reason="other") == 2_000


def test_the_types_that_were_declared_first_are_labels_and_others_count_as_other(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.handle(backlog(lanes={f"type-{n}": facts.TypeBacklog(1, float(n), 0) for n in range(60)}))
    labels = [dict(labels)["entity_type"] for name, labels in samples(registry) if name == "outbox_lane_lag_events"]
    assert set(labels) == {"article", "author", "other", *(f"type-{n}" for n in range(50))}
    assert value(registry, "outbox_lane_lag_events", entity_type="other") == 10
    assert value(registry, "outbox_lane_oldest_age_seconds", entity_type="other") == 59
    metrics.handle(backlog(lanes={"type-1": facts.TypeBacklog(3, 1.0, 0)}))
    assert value(registry, "outbox_lane_lag_events", entity_type="type-0") == 0
    assert value(registry, "outbox_lane_lag_events", entity_type="type-1") == 3


@pytest.mark.parametrize(
    ("fact", "name", "labels", "expected"),
    [
        (facts.BatchClaimed(uuid4(), 0, 500, 0.004), "outbox_claim_duration_seconds_count", {}, 1),
        (facts.Unclassified(418, "teapot"), "outbox_unclassified_total", {}, 1),
        (facts.LimitChanged(250, "429"), "outbox_batch_limit", {}, 250),
        (
            facts.VersionAhead(uuid4(), "article", "1", 3, 9),
            "outbox_idempotent_noop_total",
            {"why": "ahead"},
            1,
        ),
        (facts.EventsReplayed(uuid4(), "cli", 4, 1, "alice"), "outbox_replayed_total", {"source": "cli"}, 4),
        (
            facts.WebhookTried("replay.settled", "given_up", 9),
            "outbox_webhook_deliveries_total",
            {"result": "given_up"},
            1,
        ),
        (facts.PrunePassed(False), "outbox_prune_timestamp_seconds", {}, 0),
        (facts.IndexVerified({"missing": 2}, 100, 5.0), "outbox_drift_documents", {"kind": "missing"}, 2),
        (facts.IndexVerified({}, 100, 5.0), "outbox_verify_timestamp_seconds", {}, NOW),
    ],
)
def test_a_fact_moves_its_metric(
    registry: CollectorRegistry,
    metrics: Metrics,
    fact: facts.Fact,
    name: str,
    labels: Mapping[str, str],
    expected: float,
) -> None:
    metrics.handle(fact)
    assert value(registry, name, **labels) == expected


def test_every_series_is_there_and_zero_before_anything_happened(registry: CollectorRegistry, metrics: Metrics) -> None:
    ones = ("outbox_build_info", "outbox_es_node_up")
    started = {key: number for key, number in samples(registry).items() if key[0] not in ones}
    assert set(started.values()) == {0.0}
    for reason in Reason:
        assert ("outbox_terminal_failed_total", frozenset({("reason", str(reason))})) in started
        assert ("outbox_failed_events", frozenset({("reason", str(reason))})) in started


def slot_series(registry: CollectorRegistry) -> dict[str, float]:
    return {name: number for (name, _), number in samples(registry).items() if name.startswith("outbox_slot_")}


def test_the_series_of_the_slot_go_when_producers_leave_the_log(registry: CollectorRegistry, metrics: Metrics) -> None:
    """A 0 that stays would call somebody for a connector that is not needed."""
    metrics.handle(backlog_with(facts.SlotSample(active=False, kept_bytes=90, unread_bytes=9, safe_bytes=5)))
    metrics.handle(backlog_with(None))
    assert slot_series(registry) == {}


def test_failed_attempts_are_counted_and_terminal_ones_by_reason(registry: CollectorRegistry, metrics: Metrics) -> None:
    by_type = {
        ("article", "retried", "connect"): 3,
        ("article", "failed", "connect"): 1,
        ("author", "failed", "deterministic_exception"): 2,
        ("author", "done", ""): 4,
    }
    metrics.handle(settled(done=4, retried=3, failed=3, by_type=by_type))
    assert value(registry, "outbox_failed_total") == 6
    assert value(registry, "outbox_retry_scheduled_total") == 3
    assert value(registry, "outbox_terminal_failed_total", reason="connect") == 1
    assert value(registry, "outbox_terminal_failed_total", reason="deterministic_exception") == 2


def test_a_pause_shows_by_cause_until_it_ends(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.handle(facts.SinkPaused("a", "es_auth", "401"))
    metrics.handle(facts.SinkPaused("b", "es_auth", "401"))
    metrics.handle(facts.OperatorPaused("*", "alice", "deploy"))
    assert value(registry, "outbox_paused", cause="es_auth") == 2
    assert value(registry, "outbox_paused", cause="operator") == 1
    metrics.handle(facts.SinkPaused("a", "es_blocked", "read-only"))
    metrics.handle(facts.SinkResumed("b", "es_auth", 5.0))
    metrics.handle(facts.OperatorResumed("*"))
    assert value(registry, "outbox_paused", cause="es_auth") == 0
    assert value(registry, "outbox_paused", cause="es_blocked") == 1
    assert value(registry, "outbox_paused", cause="operator") == 0


def test_a_sample_sets_every_gauge_and_clears_what_is_gone(registry: CollectorRegistry, metrics: Metrics) -> None:
    lanes = {
        "article": facts.TypeBacklog(5, 3.5, 3),
        "excluded": facts.TypeBacklog(1, 9.0, 1),
        "other": facts.TypeBacklog(1, 2.0, 0),
    }
    metrics.handle(backlog(lanes=lanes, failed={"connect": 2, "their_own_reason": 1}))
    assert value(registry, "outbox_lag_events") == 7
    assert value(registry, "outbox_due_events") == 4
    assert value(registry, "outbox_failed_events", reason="connect") == 2
    assert value(registry, "outbox_failed_events", reason="other") == 1
    assert value(registry, "outbox_lane_lag_events", entity_type="article") == 5
    assert value(registry, "outbox_lane_lag_events", entity_type="other") == 1
    assert value(registry, "outbox_lane_oldest_age_seconds", entity_type="excluded") == 9.0
    assert value(registry, "outbox_sample_timestamp_seconds") == NOW
    metrics.handle(backlog(lag=0, failed={}, lanes={}))
    assert value(registry, "outbox_failed_events", reason="connect") == 0
    assert value(registry, "outbox_lane_lag_events", entity_type="article") == 0


def test_ages_fall_into_the_buckets_that_one_by_one_observing_would_choose(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    from prometheus_client import Histogram

    ages = [0.0, 0.01, 0.0100001, 0.05, 0.3, 1.0, 29.99, 30.0, 30.01, 5_000.0]
    metrics.handle(settled(done=10, first_ages_seconds=ages))
    metrics.handle(settled(done=10, first_ages_seconds=list(reversed(ages))))
    reference_registry = CollectorRegistry()
    bounds = AgeHistogram("x", "", "").bounds
    reference = Histogram("outbox_event_latency_seconds", "", buckets=bounds, registry=reference_registry)
    for age in ages * 2:
        reference.observe(age)
    ours = {key: n for key, n in samples(registry).items() if key[0].startswith("outbox_event_latency")}
    assert ours == pytest.approx(samples(reference_registry))
    assert value(registry, "outbox_event_latency_seconds_bucket", le="30.0") == 16
