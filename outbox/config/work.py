"""Owns the settings of projection: worker, batches, leases, retries, limits per entity type. It does not apply them."""

from __future__ import annotations

import os
import re
import secrets
import socket
from types import MappingProxyType
from typing import Any, Literal

from outbox.config.declaration import CommaList, KindCounts, KindRates, Section, setting
from outbox.policy.document import BATCH_BYTES

WORKER_ID_LENGTH = 120
LEAST_LEASE_SECONDS = 3.0
_TYPES = "entity types separated by commas, such as `article,author`"


def default_worker_id() -> str:
    """host-pid-random: readable, and new at every start, so that it is never taken."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:90] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class WorkerSettings(Section):
    """One daemon process: its name, what it claims and how it stops."""

    id: str = setting(
        "OUTBOX_WORKER_ID",
        default_factory=default_worker_id,
        default_text="host-pid-random",
        min_length=1,
        max_length=WORKER_ID_LENGTH,
        pattern=r"^[\x21-\x7e]+$",
        meaning="The worker's name in `owner`, in logs and in `outbox status`.",
        tradeoff="A fixed name is easier to read in tests. Two running workers must never share one.",
        accepts=f"1 to {WORKER_ID_LENGTH} ASCII characters without blanks",
    )
    entity_types: CommaList = setting(
        "OUTBOX_ENTITY_TYPES",
        (),
        default_text="all",
        meaning="Claim only these entity types.",
        tradeoff="Keeps a slow type from delaying others. Needs `outbox migrate --by-type`.",
        accepts=_TYPES,
    )
    exclude_entity_types: CommaList = setting(
        "OUTBOX_EXCLUDE_ENTITY_TYPES",
        (),
        meaning="Claim all entity types except these.",
        tradeoff="Another daemon must claim these. Needs `outbox migrate --by-type`.",
        accepts=_TYPES,
    )
    concurrency: int = setting(
        "OUTBOX_CONCURRENCY",
        2,
        ge=1,
        le=64,
        meaning="Lanes (threads) in one process.",
        tradeoff="With two, one claims while the other's request is in flight. Each costs a connection and up to four"
        " times `OUTBOX_BATCH_BYTES` of memory.",
    )
    poll_interval_seconds: float = setting(
        "OUTBOX_POLL_INTERVAL_SECONDS",
        0.5,
        gt=0,
        le=3600,
        meaning="Longest wait of an idle lane before its next claim.",
        tradeoff="Shorter: less delay, more empty queries. Busy lanes do not wait.",
    )
    listen: bool = setting(
        "OUTBOX_LISTEN",
        False,
        meaning="Wake idle lanes, and who waits for an event, by PostgreSQL's LISTEN.",
        tradeoff="Wakes them in milliseconds. Needs `outbox migrate --notify` and a direct connection.",
    )
    max_runtime_seconds: float = setting(
        "OUTBOX_MAX_RUNTIME_SECONDS",
        0.0,
        ge=0,
        meaning="Drain and exit with 0 after this time; 0 runs forever.",
        tradeoff="For supervisors that restart regularly.",
    )
    shutdown_grace_seconds: float = setting(
        "OUTBOX_SHUTDOWN_GRACE_SECONDS",
        25.0,
        ge=8.0,
        meaning="Time to finish or release what is in flight after SIGTERM.",
        tradeoff="Keep it below the supervisor's own limit (Kubernetes: 30 s). Also limits one request.",
    )


class BatchSettings(Section):
    """How much one claim and one bulk request may hold."""

    size: int = setting(
        "OUTBOX_BATCH_SIZE",
        500,
        ge=1,
        le=10_000,
        aliases=("OUTBOX_BULK_SIZE",),
        meaning="Most events in one batch.",
        tradeoff="Larger: fewer round trips, more work repeated after a crash. The actual size adapts below this.",
    )
    bytes: int = setting(
        "OUTBOX_BATCH_BYTES",
        BATCH_BYTES,
        ge=1_024,
        le=104_857_600,
        meaning="Most bytes of one bulk request, and of documents read at once.",
        tradeoff="Limits memory. Must stay below Elasticsearch's `http.max_content_length` (100 MB). A document above"
        " its share of a batch (these bytes divided by the batch size, at most 64 KiB) is read by a second query.",
    )


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


class KindSettings(Section):
    """Limits per entity type, over all workers together."""

    concurrency: KindCounts = setting(
        "OUTBOX_KIND_CONCURRENCY",
        default_factory=lambda: MappingProxyType({}),
        default_text="`{}`",
        meaning="Most events in flight per entity type, over all workers.",
        tradeoff="Protects other types from this one. Needs `outbox migrate --by-type`.",
        accepts='JSON, such as `{"video": 10}`, with whole numbers from 1',
    )
    concurrency_default: int | None = setting(
        "OUTBOX_KIND_CONCURRENCY_DEFAULT",
        ge=1,
        meaning="The same limit for each type that is not in the map.",
        tradeoff="If unset, these types have no limit.",
    )
    rate: KindRates = setting(
        "OUTBOX_KIND_RATE",
        default_factory=lambda: MappingProxyType({}),
        default_text="`{}`",
        meaning="Most events per second per entity type, over all workers.",
        tradeoff="A token bucket with a burst of one second. Needs `outbox migrate --by-type`.",
        accepts='JSON, such as `{"video": 0.5}`, with numbers above 0',
    )
    rate_default: float | None = setting(
        "OUTBOX_KIND_RATE_DEFAULT",
        gt=0,
        allow_inf_nan=False,
        meaning="The same rate for each type that is not in the map.",
        tradeoff="If unset, these types have no limit.",
    )

    @property
    def limited(self) -> bool:
        """Whether any limit is set; claims are then made per type."""
        defaults = (self.concurrency_default, self.rate_default)
        return bool(self.concurrency or self.rate) or any(limit is not None for limit in defaults)
