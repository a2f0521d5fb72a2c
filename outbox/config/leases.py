"""Owns the settings of leases, reclaim and retries; it does not apply them."""

from __future__ import annotations

from typing import Any, Literal

from outbox.config.setting import Section, setting

LEAST_LEASE_SECONDS = 3.0


def default_heartbeat_seconds(lease_seconds: float) -> float:
    """A third of the lease, so that two heartbeats may be missed, within [1 s, lease - 0.5 s]."""
    return min(max(lease_seconds / 3, 1.0), lease_seconds - 0.5)


def _heartbeat(validated: dict[str, Any]) -> float:
    return default_heartbeat_seconds(validated.get("seconds", 60.0))


class LeaseSettings(Section):
    """How long a claim lasts without a heartbeat."""

    seconds: float = setting(
        "OUTBOX_LEASE_SECONDS",
        60.0,
        ge=LEAST_LEASE_SECONDS,
        meaning="How long a worker keeps its claimed events without a heartbeat.",
        tradeoff="Shorter: a killed worker's events are reclaimed sooner. Also limits one request (0.7 x lease).",
    )
    heartbeat_seconds: float = setting(
        "OUTBOX_HEARTBEAT_SECONDS",
        default_factory=_heartbeat,
        default_text="a third of the lease, within [1 s, lease - 0.5 s]",
        ge=0.1,
        meaning="How often a lease in use is renewed.",
        tradeoff="At most the lease minus 0.5 s. Leave it unset, except in tests.",
    )


class ReclaimSettings(Section):
    """How events of dead workers are reclaimed."""

    interval_seconds: float = setting(
        "OUTBOX_RECLAIM_INTERVAL_SECONDS",
        5.0,
        gt=0,
        meaning="How often expired leases are searched for.",
        tradeoff="Costs one small query. After a crash, events wait for at most the lease plus this interval.",
    )
    batch_size: int = setting(
        "OUTBOX_RECLAIM_BATCH_SIZE",
        500,
        ge=1,
        le=10_000,
        meaning="Most events reclaimed in one step.",
        tradeoff="Limits the duration of one transaction.",
    )
    max_processing_seconds: float = setting(
        "OUTBOX_MAX_PROCESSING_SECONDS",
        600.0,
        gt=0,
        meaning="A worker that holds a batch longer than this loses it, even if its heartbeats continue.",
        tradeoff="Frees the events of a hung worker. Must exceed the duration of the slowest normal batch.",
    )


class RetrySettings(Section):
    """When a transient failure is retried, and when the event becomes `failed`."""

    max_attempts: int = setting(
        "OUTBOX_MAX_ATTEMPTS",
        10,
        ge=1,
        le=1_000_000,
        meaning="Attempts before an event becomes `failed`; a row's own `max_attempts` wins.",
        tradeoff="At the defaults no event fails in an outage shorter than four minutes.",
    )
    base_backoff_seconds: float = setting(
        "OUTBOX_BASE_BACKOFF_SECONDS",
        1.0,
        gt=0,
        meaning="Wait after the first failed attempt; doubles with each further one.",
        tradeoff="Half of each wait is random, so that retries spread out.",
    )
    max_backoff_seconds: float = setting(
        "OUTBOX_MAX_BACKOFF_SECONDS",
        300.0,
        gt=0,
        meaning="Longest wait between two attempts.",
        tradeoff="Longer: events survive longer outages, but each may wait this long after recovery.",
    )
    outage_policy: Literal["count", "pause"] = setting(
        "OUTBOX_OUTAGE_POLICY",
        "count",
        meaning="`count`: attempts made during an Elasticsearch outage count; `pause`: they do not.",
        tradeoff="With `pause` no event fails because of an outage, but the attempt count no longer shows one.",
    )
