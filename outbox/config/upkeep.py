"""Owns the settings of retention, replay and webhooks; it does not apply them."""

from __future__ import annotations

from pathlib import Path

from outbox.config.setting import Section, setting
from outbox.config.values import CommaList, HttpAddress, SigningSecret
from outbox.policy.safe_text import redact_address


class RetentionSettings(Section):
    """How long finished events and audit rows are kept."""

    days: float = setting(
        "OUTBOX_RETENTION_DAYS",
        0.0,
        ge=0,
        meaning="Delete done and discarded events after this many days; 0 keeps them.",
        tradeoff="Failed events are never deleted by age. A smaller table is faster to vacuum.",
    )
    audit_ttl_days: float = setting(
        "OUTBOX_AUDIT_TTL_DAYS",
        30.0,
        ge=0,
        meaning="Delete audit rows after this many days; 0 keeps them.",
        tradeoff="Less than 7 counts as 7. Their hashes stay, so `outbox audit verify` still works.",
    )
    prune_interval_seconds: float = setting(
        "OUTBOX_PRUNE_INTERVAL_SECONDS",
        60.0,
        gt=0,
        meaning="How often a daemon prunes, each time for at most half this interval.",
        tradeoff="Longer: longer passes that delete more, and longer breaks between them.",
    )
    prune_batch_size: int = setting(
        "OUTBOX_PRUNE_BATCH_SIZE",
        500,
        ge=1,
        le=10_000,
        meaning="Rows deleted in the first step of a pass.",
        tradeoff="Steps on events grow up to 10,000 rows while one takes less than 100 ms.",
    )


class ReplaySettings(Section):
    """Limits per replay pass of a daemon."""

    max_claim: int = setting("OUTBOX_REPLAY_MAX_CLAIM", 5, ge=1, meaning="Replay batches taken over per pass.")
    max_start_per_batch: int = setting(
        "OUTBOX_REPLAY_MAX_START_PER_BATCH",
        500,
        ge=1,
        le=10_000,
        meaning="Rows dispatched per replay batch and pass.",
        tradeoff="Larger: a replay starts faster, but delays new events more.",
    )
    max_poll: int = setting("OUTBOX_REPLAY_MAX_POLL", 25, ge=1, meaning="Replay batches checked per pass.")
    max_settle: int = setting("OUTBOX_REPLAY_MAX_SETTLE", 10, ge=1, meaning="Replay batches settled per pass.")
    max_polls: int = setting(
        "OUTBOX_REPLAY_MAX_POLLS",
        20,
        ge=1,
        meaning="Checks without progress before a replay batch becomes `timeout`.",
        tradeoff="Its events are still processed; only the batch is no longer tracked.",
    )


class WebhookSettings(Section):
    """Notifications about failures, pauses and replays."""

    url: HttpAddress | None = setting(
        "OUTBOX_WEBHOOK_URL",
        meaning="Address to send webhooks to.",
        tradeoff="Never delays projection. Shown without its path, which is often a secret.",
        accepts="`https://host/path` without credentials",
        show=redact_address,
    )
    secret: SigningSecret | None = setting(
        "OUTBOX_WEBHOOK_SECRET",
        meaning="Key of the HMAC-SHA256 signature (Standard Webhooks).",
        tradeoff="Without it receivers cannot verify the sender.",
        accepts="the secret on one line; after `whsec_` the key in base64",
        secret=True,
    )
    timeout_seconds: float = setting(
        "OUTBOX_WEBHOOK_TIMEOUT_SECONDS",
        5.0,
        gt=0,
        le=60.0,
        meaning="Longest duration of one delivery, including DNS and all addresses of the host.",
    )
    retries: int = setting(
        "OUTBOX_WEBHOOK_RETRIES",
        3,
        ge=0,
        le=10,
        meaning="Quick retries before a delivery is deferred (1 min to 12 h).",
    )
    allowed_hosts: CommaList = setting(
        "OUTBOX_WEBHOOK_ALLOWED_HOSTS",
        (),
        meaning="Hosts that a replay's own webhook may use, even at private addresses.",
        tradeoff="Everyone who may replay can make the daemon send requests to these hosts.",
        accepts="host names separated by commas",
    )
    secret_file: Path | None = None
