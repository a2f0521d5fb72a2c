"""Turns facts into metric values. Declares no metric (see instruments) and asks no server."""

import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from outbox import __version__, facts
from outbox.policy.outcome import Reason
from outbox.store.backlog import MOST_LABELS
from outbox.telemetry.instruments import OTHER, Instruments

Handler = Callable[[Any], None]


def new_registry() -> CollectorRegistry:
    """A registry of this process: our metrics, and the operating system's about the process."""
    # One `_created` series per counter would double the page, and no rule of ours reads them.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Metrics:
    """Subscribe `handle`. The cost is per batch, not per event; only ages are read one by one."""

    def __init__(
        self,
        projection: str,
        registry: CollectorRegistry,
        entity_types: Iterable[str] = (),
        wall_clock: Callable[[], float] = time.time,
        nodes: Sequence[str] = (),
    ) -> None:
        self.instruments = Instruments(projection, registry, nodes)
        self.instruments.build_info(__version__, platform.python_version())
        self._now = wall_clock
        self._lock = Lock()  # guards the two below: several lanes may report a pause at once
        self._pauses: dict[str, str] = {}  # scope -> cause
        self._brakes: set[str] = set()
        self._types = dict.fromkeys((*entity_types, OTHER))
        self._most_types = len(self._types) + MOST_LABELS
        self._lanes({})
        self._handlers = self._table()

    def handle(self, fact: facts.Fact) -> None:
        handler = self._handlers.get(type(fact))
        if handler is not None:
            handler(fact)

    def _table(self) -> Mapping[type[Any], Handler]:
        i = self.instruments
        return {
            facts.BatchClaimed: lambda f: i.claim_duration_seconds.observe(f.duration_seconds),
            facts.BatchSettled: self._settled,
            facts.NoProgress: lambda f: i.no_progress_batches[f.reason].inc(),
            facts.BulkSent: self._bulk,
            facts.Unclassified: lambda _: i.unclassified.inc(),
            facts.LeaseLost: lambda f: i.lease_lost.inc(f.count),
            facts.Reclaimed: self._reclaimed,
            facts.SinkPaused: lambda f: self._pause(f"sink {f.target}", f.cause),
            facts.SinkResumed: lambda f: self._resume(f"sink {f.target}"),
            facts.OperatorPaused: lambda f: self._pause(f"operator {f.scope}", "operator"),
            facts.OperatorResumed: lambda f: self._resume(f"operator {f.scope}"),
            facts.BrakeOn: lambda f: self._brake(self._brakes.add, f.fingerprint),
            facts.BrakeOff: lambda f: self._brake(self._brakes.discard, f.fingerprint),
            facts.NodeLeftOut: lambda f: i.es_node_up[f.node].set(0),
            facts.NodeBack: lambda f: i.es_node_up[f.node].set(1),
            facts.LimitChanged: lambda f: i.batch_limit.set(f.items),
            facts.VersionAhead: lambda _: i.idempotent_noop["ahead"].inc(),
            facts.VersionRaised: lambda _: i.version_raised.inc(),
            facts.BacklogSampled: self._sampled,
            facts.FannedOut: lambda f: i.fanout_refreshes.inc(f.refreshes),
            facts.StreamSampled: lambda f: i.stream_sample(f.lag, f.oldest_age_seconds, len(f.resting), f.empty),
            facts.PartitionsRevoked: self._partitions_revoked,
            facts.StreamGap: self._gap,
            facts.CommitRefused: lambda _: i.stream_commits_refused.inc(),
            facts.EventsReplayed: lambda f: i.replayed[f.source].inc(f.count),
            facts.ReplaySettled: self._replay_settled,
            facts.TablePruned: lambda f: i.pruned[f.table].inc(f.count),
            facts.PrunePassed: self._prune_passed,
            facts.WebhookTried: lambda f: i.webhook_deliveries[f.result].inc(),
            facts.IndexVerified: self._verified,
        }

    def _settled(self, batch: facts.BatchSettled) -> None:
        i = self.instruments
        i.settle_duration_seconds.observe(batch.settle_seconds)
        if batch.done:
            i.processed.inc(batch.done)
            i.last_success_timestamp_seconds.set(self._now())
            i.event_latency_seconds.observe_all(batch.first_ages_seconds)
        if batch.superseded:
            i.idempotent_noop["superseded"].inc(batch.superseded)
        if batch.missing:
            i.idempotent_noop["missing"].inc(batch.missing)
        if batch.retried or batch.failed:
            self._not_accepted(batch)

    def _not_accepted(self, batch: facts.BatchSettled) -> None:
        i = self.instruments
        i.failed.inc(batch.retried + batch.failed)
        i.retry_scheduled.inc(batch.retried)
        for (_, outcome, reason), count in batch.by_type.items():
            if outcome == "failed":
                i.terminal_failed[reason].inc(count)

    def _bulk(self, bulk: facts.BulkSent) -> None:
        i = self.instruments
        i.es_bulk_requests[bulk.result].inc()
        i.es_bulk_request_duration_seconds.observe(bulk.duration_seconds)
        i.es_bulk_bytes.observe(bulk.size_bytes)
        for result, count in bulk.items.items():
            i.es_bulk_items[result].inc(count)
        for failure_class, count in bulk.failures.items():
            i.es_bulk_item_failures[failure_class].inc(count)

    def _reclaimed(self, reclaim: facts.Reclaimed) -> None:
        i = self.instruments
        i.reclaimed.inc(reclaim.count)
        i.failed.inc(reclaim.failed)
        i.terminal_failed[Reason.CRASH_SUSPECT].inc(reclaim.failed)

    def _pause(self, scope: str, cause: str) -> None:
        """A target whose cause changes is paused for the new cause only."""
        with self._lock:
            self._pauses[scope] = cause if cause in self.instruments.paused else OTHER
            self._show_pauses()

    def _resume(self, scope: str) -> None:
        with self._lock:
            self._pauses.pop(scope, None)
            self._show_pauses()

    def _show_pauses(self) -> None:
        causes = list(self._pauses.values())
        for cause in self.instruments.paused:
            self.instruments.paused[cause].set(causes.count(cause))

    def _brake(self, change: Callable[[str], None], fingerprint: str) -> None:
        with self._lock:
            change(fingerprint)
            self.instruments.braked_fingerprints.set(len(self._brakes))

    def _sampled(self, backlog: facts.BacklogSampled) -> None:
        i = self.instruments
        i.lag_events.set(backlog.lag)
        i.oldest_age_seconds.set(backlog.oldest_age_seconds)
        i.inflight_events.set(backlog.inflight)
        i.stuck_processing_events.set(backlog.stuck)
        i.due_events.set(backlog.due)
        if backlog.fanouts is not None:
            i.fanouts_open.set(backlog.fanouts.open)
            i.fanout_refreshes_open.set(backlog.fanouts.refreshes_open)
        self._failed_rows(backlog.failed)
        self._lanes(backlog.lanes)
        i.slot_sample({} if backlog.slot is None else asdict(backlog.slot))
        i.sample_timestamp_seconds.set(self._now())

    def _lanes(self, lanes: Mapping[str, facts.TypeBacklog]) -> None:
        """The sampler gives the types that were declared first. Those above the limit count as `other`."""
        i = self.instruments
        new = [entity_type for entity_type in lanes if entity_type not in self._types]
        self._types |= dict.fromkeys(new[: self._most_types - len(self._types)])
        lag = dict.fromkeys(self._types, 0)
        oldest = dict.fromkeys(self._types, 0.0)
        for entity_type, lane in lanes.items():
            label = entity_type if entity_type in lag else OTHER
            lag[label] += lane.lag
            oldest[label] = max(oldest[label], lane.oldest_age_seconds)
        for label in lag:
            i.lane_lag_events.labels(i.projection, label).set(lag[label])
            i.lane_oldest_age_seconds.labels(i.projection, label).set(oldest[label])

    def _failed_rows(self, failed: Mapping[str, int]) -> None:
        """Rows from before adoption may have other reasons: they count as `other`."""
        known = self.instruments.failed_events
        counts = dict.fromkeys(known, 0)
        for reason, count in failed.items():
            counts[reason if reason in known else OTHER] += count
        for reason, count in counts.items():
            known[reason].set(count)

    def _partitions_revoked(self, fact: facts.PartitionsRevoked) -> None:
        self.instruments.forget_partitions(fact.partitions)
        self.instruments.stream_revoked_records.inc(fact.in_flight)

    def _gap(self, fact: facts.StreamGap) -> None:
        self.instruments.stream_gaps.inc()
        self.instruments.stream_gap_records.inc(max(fact.found - fact.expected, 0))

    def _replay_settled(self, replay: facts.ReplaySettled) -> None:
        results = self.instruments.replay_results
        results["done"].inc(replay.done)
        results["failed_again"].inc(replay.failed_again)

    def _prune_passed(self, pass_: facts.PrunePassed) -> None:
        """All tables together: pruning the audit in time must not hide a backlog of events."""
        if pass_.complete:
            self.instruments.prune_timestamp_seconds.set(self._now())

    def _verified(self, result: facts.IndexVerified) -> None:
        i = self.instruments
        for kind in i.drift_documents:
            i.drift_documents[kind].set(result.drift.get(kind, 0))
        i.verify_timestamp_seconds.set(result.finished_at or self._now())
