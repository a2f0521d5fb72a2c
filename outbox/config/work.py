"""Owns the settings of projection: worker, batches, leases, retries, limits per entity type. It does not apply them."""

import os
import re
import secrets
import socket
from typing import Any, Literal

from outbox.config.declaration import CommaList, KindCounts, KindRates, Section, no_entries, setting
from outbox.policy.document import BATCH_BYTES, DOCUMENT_BYTES

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
        default_worker_id,
        "host-pid-random",
        min_length=1,
        max_length=WORKER_ID_LENGTH,
        pattern=r"^[\x21-\x7e]+$",
        accepts=f"1 to {WORKER_ID_LENGTH} ASCII characters without blanks",
    )
    """The worker's name in `owner`, in logs and in `outbox status`. A fixed name is easier to read in tests. Two
    running workers must never share one."""
    entity_types: CommaList = setting("OUTBOX_ENTITY_TYPES", (), "all", accepts=_TYPES)
    """Claim only these entity types. Keeps a slow type from delaying others. Needs `outbox migrate --by-type`."""
    exclude_entity_types: CommaList = setting("OUTBOX_EXCLUDE_ENTITY_TYPES", (), accepts=_TYPES)
    """Claim all entity types except these. Another daemon must claim these. Needs `outbox migrate --by-type`."""
    concurrency: int = setting("OUTBOX_CONCURRENCY", 2, ge=1, le=64)
    """Lanes (threads) in one process. With two, one claims while the other's request is in flight. Each costs up to two
    connections and four times `OUTBOX_BATCH_BYTES` of memory."""
    poll_interval_seconds: float = setting("OUTBOX_POLL_INTERVAL_SECONDS", 0.5, gt=0, le=3600)
    """Longest wait of an idle lane before its next claim. Shorter: less delay, more empty queries. Busy lanes do not
    wait."""
    listen: bool = setting("OUTBOX_LISTEN", False)
    """Wake idle lanes, and who waits for an event, by PostgreSQL's LISTEN. Wakes them in milliseconds. Needs `outbox
    migrate --notify` and a direct connection."""
    max_runtime_seconds: float = setting("OUTBOX_MAX_RUNTIME_SECONDS", 0.0, ge=0)
    """Drain and exit with 0 after this time; 0 runs forever. For supervisors that restart regularly."""
    shutdown_grace_seconds: float = setting("OUTBOX_SHUTDOWN_GRACE_SECONDS", 25.0, ge=8.0)
    """Time to finish or release what is in flight after SIGTERM. Keep it below the supervisor's own limit (Kubernetes:
    30 s). Also limits one request."""


class BatchSettings(Section):
    """How much one claim and one bulk request may hold."""

    size: int = setting("OUTBOX_BATCH_SIZE", 500, ge=1, le=10_000, aliases=("OUTBOX_BULK_SIZE",))
    """Most events in one batch. Larger: fewer round trips, more work repeated after a crash. The actual size adapts
    below this."""
    bytes: int = setting("OUTBOX_BATCH_BYTES", BATCH_BYTES, ge=1_024, le=104_857_600)
    """Most bytes of one bulk request, and of documents read at once. Limits memory. Must stay below Elasticsearch's
    `http.max_content_length` (100 MB). A document above its share of a batch (these bytes divided by the batch size, at
    most 64 KiB) is read by a second query."""
    max_document_bytes: int = setting("OUTBOX_MAX_DOCUMENT_BYTES", DOCUMENT_BYTES, ge=65_536, le=1_073_741_824)
    """Most bytes of one document. A larger one fails (`too_large`) by its size, unread, and its neighbours are
    projected. `outbox_enqueue` refuses larger payloads: `outbox migrate` keeps this value in the database. A lane needs
    up to three times as much memory for a moment."""


def _heartbeat_seconds(validated: dict[str, Any]) -> float:
    """A third of the lease, so that two heartbeats may be missed, within [1 s, lease - 0.5 s]."""
    lease_seconds: float = validated.get("seconds", 60.0)
    return min(max(lease_seconds / 3, 1.0), lease_seconds - 0.5)


class LeaseSettings(Section):
    """How long a claim lasts without a heartbeat."""

    seconds: float = setting("OUTBOX_LEASE_SECONDS", 60.0, ge=LEAST_LEASE_SECONDS)
    """How long a worker keeps its claimed events without a heartbeat. Shorter: a killed worker's events are reclaimed
    sooner. Also limits one request (0.7 x lease)."""
    heartbeat_seconds: float = setting(
        "OUTBOX_HEARTBEAT_SECONDS", _heartbeat_seconds, "a third of the lease, within [1 s, lease - 0.5 s]", ge=0.1
    )
    """How often a lease in use is renewed. At most the lease minus 0.5 s. Leave it unset, except in tests."""


class ReclaimSettings(Section):
    """How events of dead workers are reclaimed."""

    interval_seconds: float = setting("OUTBOX_RECLAIM_INTERVAL_SECONDS", 5.0, gt=0)
    """How often expired leases are searched for. Costs one small query. After a crash, events wait for at most the
    lease plus this interval."""
    batch_size: int = setting("OUTBOX_RECLAIM_BATCH_SIZE", 500, ge=1, le=10_000)
    """Most events reclaimed in one step. Limits the duration of one transaction."""
    max_processing_seconds: float = setting("OUTBOX_MAX_PROCESSING_SECONDS", 600.0, gt=0)
    """A worker that holds a batch longer than this loses it, even if its heartbeats continue. Frees the events of a
    hung worker. Must exceed the duration of the slowest normal batch."""


class RetrySettings(Section):
    """When a transient failure is retried, and when the event becomes `failed`."""

    max_attempts: int = setting("OUTBOX_MAX_ATTEMPTS", 10, ge=1, le=1_000_000)
    """Attempts before an event becomes `failed`; a row's own `max_attempts` wins. At the defaults no event fails in an
    outage shorter than four minutes."""
    base_backoff_seconds: float = setting("OUTBOX_BASE_BACKOFF_SECONDS", 1.0, gt=0)
    """Wait after the first failed attempt; doubles with each further one. Half of each wait is random, so that retries
    spread out."""
    max_backoff_seconds: float = setting("OUTBOX_MAX_BACKOFF_SECONDS", 300.0, gt=0)
    """Longest wait between two attempts. Longer: events survive longer outages, but each may wait this long after
    recovery."""
    outage_policy: Literal["count", "pause"] = setting("OUTBOX_OUTAGE_POLICY", "count")
    """`count`: attempts made during an Elasticsearch outage count; `pause`: they do not. With `pause` no event fails
    because of an outage, but the attempt count no longer shows one."""


class KindSettings(Section):
    """Limits per entity type, over all workers together."""

    concurrency: KindCounts = setting(
        "OUTBOX_KIND_CONCURRENCY",
        no_entries,
        "`{}`",
        accepts='JSON, such as `{"video": 10}`, with whole numbers from 1',
    )
    """Most events in flight per entity type, over all workers. Protects other types from this one. Needs `outbox
    migrate --by-type`."""
    concurrency_default: int | None = setting("OUTBOX_KIND_CONCURRENCY_DEFAULT", ge=1)
    """The same limit for each type that is not in the map. If unset, these types have no limit."""
    rate: KindRates = setting(
        "OUTBOX_KIND_RATE", no_entries, "`{}`", accepts='JSON, such as `{"video": 0.5}`, with numbers above 0'
    )
    """Most events per second per entity type, over all workers. A token bucket with a burst of one second. Needs
    `outbox migrate --by-type`."""
    rate_default: float | None = setting("OUTBOX_KIND_RATE_DEFAULT", gt=0, allow_inf_nan=False)
    """The same rate for each type that is not in the map. If unset, these types have no limit."""

    @property
    def limited(self) -> bool:
        defaults = (self.concurrency_default, self.rate_default)
        return bool(self.concurrency or self.rate) or any(limit is not None for limit in defaults)
