"""Owns the settings of retention, replay and webhooks; it does not apply them."""

from __future__ import annotations

from pathlib import Path

from outbox.config.setting import CommaList, HttpAddress, Section, SigningSecret, setting
from outbox.policy.redact import redact_address


class RetentionSettings(Section):
    """How long finished events and the audit are kept."""

    days: float = setting(
        "OUTBOX_RETENTION_DAYS",
        0.0,
        ge=0,
        meaning="Remove done and discarded events after this many days; 0 keeps them.",
        tradeoff="Failed events are never removed by age. A small table is quicker to vacuum.",
    )
    audit_ttl_days: float = setting(
        "OUTBOX_AUDIT_TTL_DAYS",
        30.0,
        ge=0,
        meaning="Remove audit rows after this many days; 0 keeps them.",
        tradeoff="Less than 7 counts as 7. Their hashes stay, so `outbox audit verify` goes on working.",
    )
    prune_interval_seconds: float = setting(
        "OUTBOX_PRUNE_INTERVAL_SECONDS",
        60.0,
        gt=0,
        meaning="How often one daemon prunes, for at most half this time.",
        tradeoff="Longer passes remove more at once and rest longer between.",
    )
    prune_batch_size: int = setting(
        "OUTBOX_PRUNE_BATCH_SIZE",
        500,
        ge=1,
        le=10_000,
        meaning="Rows removed in the first step of a pass.",
        tradeoff="Event steps grow to 10,000 while they take less than 100 ms.",
    )


class ReplaySettings(Section):
    """Limits of one replay pass of a daemon."""

    max_claim: int = setting("OUTBOX_REPLAY_MAX_CLAIM", 5, ge=1, meaning="Replay batches taken over a pass.")
    max_start_per_batch: int = setting(
        "OUTBOX_REPLAY_MAX_START_PER_BATCH",
        500,
        ge=1,
        le=10_000,
        meaning="Rows dispatched a batch and pass.",
        tradeoff="Larger: a replay starts quicker and crowds out fresh events more.",
    )
    max_poll: int = setting("OUTBOX_REPLAY_MAX_POLL", 25, ge=1, meaning="Replay batches looked at a pass.")
    max_settle: int = setting("OUTBOX_REPLAY_MAX_SETTLE", 10, ge=1, meaning="Replay batches settled a pass.")
    max_polls: int = setting(
        "OUTBOX_REPLAY_MAX_POLLS",
        20,
        ge=1,
        meaning="Looks without progress before a replay batch is `timeout`.",
        tradeoff="Its events go on all the same; only the batch stops being followed.",
    )


class WebhookSettings(Section):
    """Who is told about failures, pauses and replays."""

    url: HttpAddress | None = setting(
        "OUTBOX_WEBHOOK_URL",
        meaning="Address that receives webhooks.",
        tradeoff="Never delays projection. Shown without its path, which is often a secret.",
        accepts="`https://host/path` without credentials",
        show=redact_address,
    )
    secret: SigningSecret | None = setting(
        "OUTBOX_WEBHOOK_SECRET",
        meaning="Key of the HMAC-SHA256 signature (Standard Webhooks).",
        tradeoff="Without it receivers cannot tell that a message is ours.",
        accepts="the secret on one line; after `whsec_` the key in base64",
        secret=True,
    )
    timeout_seconds: float = setting(
        "OUTBOX_WEBHOOK_TIMEOUT_SECONDS",
        5.0,
        gt=0,
        le=60.0,
        meaning="Longest time of one delivery, name lookup and all addresses included.",
    )
    retries: int = setting(
        "OUTBOX_WEBHOOK_RETRIES",
        3,
        ge=0,
        le=10,
        meaning="Quick retries before a delivery is put off (1 min to 12 h).",
    )
    allowed_hosts: CommaList = setting(
        "OUTBOX_WEBHOOK_ALLOWED_HOSTS",
        (),
        meaning="Hosts that a replay's own webhook may name; also permits private addresses.",
        tradeoff="Every host here can be reached from the daemon's network by whoever may replay.",
        accepts="host names separated by commas",
    )
    secret_file: Path | None = None
