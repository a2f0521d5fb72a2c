"""Owns the settings around projection: health pages, retention, replays, webhooks, console, logs, embedded servers."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from outbox.config.declaration import CommaList, HttpAddress, NetworkList, Section, SigningSecret, setting
from outbox.policy.redact import redact_address

LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(str.lower)]
_HOST = r"^[A-Za-z0-9._:%-]+$"


def default_log_format() -> str:
    return "console" if sys.stderr is not None and sys.stderr.isatty() else "json"


def default_data_dir() -> Path:
    """The user's cache folder; users without a home (services, containers) get a temporary one.

    Root gets the system's: the servers then run as another user, who cannot read root's home.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    if not given and os.geteuid() == 0 and sys.platform != "darwin":
        return Path("/var/cache/outbox")
    try:
        base = Path(given) if given else Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    except RuntimeError:
        base = Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"
    return base / "outbox"


class HttpSettings(Section):
    """The daemon's metrics and health pages."""

    metrics_port: int = setting("OUTBOX_METRICS_PORT", 9108, ge=0, le=65535)
    """Port of /metrics, /healthz and /readyz; 0 is off. Each daemon on a host needs its own."""
    metrics_host: str = setting("OUTBOX_METRICS_HOST", "127.0.0.1", pattern=_HOST, accepts="a host name or IP address")
    """Address these pages listen on. `0.0.0.0` for a scraper on another host or in another container. The pages have no
    login."""
    port: int | None = setting("OUTBOX_HTTP_PORT", ge=0, le=65535)
    """A second port for /healthz and /readyz. For platforms that prescribe the port to probe; 0 is off."""


class HealthSettings(Section):
    """What /readyz checks."""

    freshness_seconds: float = setting("OUTBOX_FRESHNESS_SECONDS", 60.0, gt=0)
    """Not ready if events are due and none has succeeded for this long. Measured only while Elasticsearch answers and
    nothing is paused."""
    require_es_ready: bool = setting("OUTBOX_REQUIRE_ES_READY", False)
    """/readyz returns 503 while Elasticsearch is unreachable. If false it returns 200 and `degraded`: restarting
    workers would not bring Elasticsearch back."""


class RetentionSettings(Section):
    """How long finished events and audit rows are kept."""

    days: float = setting("OUTBOX_RETENTION_DAYS", 0.0, ge=0)
    """Delete done and discarded events after this many days; 0 keeps them. Failed events are never deleted by age. A
    smaller table is faster to vacuum."""
    audit_ttl_days: float = setting("OUTBOX_AUDIT_TTL_DAYS", 30.0, ge=0)
    """Delete audit rows after this many days; 0 keeps them. Less than 7 counts as 7. Their hashes stay, so `outbox
    audit verify` still works."""
    prune_interval_seconds: float = setting("OUTBOX_PRUNE_INTERVAL_SECONDS", 60.0, gt=0)
    """How often a daemon prunes, each time for at most half this interval. Longer: longer passes that delete more, and
    longer breaks between them."""
    prune_batch_size: int = setting("OUTBOX_PRUNE_BATCH_SIZE", 500, ge=1, le=10_000)
    """Rows deleted in the first step of a pass. Steps on events grow up to 10,000 rows while one takes less than 100
    ms."""


class EventLogSettings(Section):
    """The event log of `outbox migrate --log`, which a connector reads for Kafka."""

    days: float = setting("OUTBOX_EVENT_LOG_DAYS", 3.0, ge=0, le=3650)
    """Drop the days of search_outbox_log that ended longer ago than this; 0 keeps them. The connector reads the
    write-ahead log, not the table, so dropping loses nothing. What is kept is read again when the slot was lost, and
    for so long an idempotency key is known."""
    slot: str = setting(
        "OUTBOX_EVENT_LOG_SLOT",
        "outbox_log",
        pattern=r"^[a-z0-9_]{1,63}$",
        accepts="1 to 63 lower case letters, digits or `_`",
    )
    """The connector's replication slot. A slot belongs to the whole server: installations that share one need different
    names."""


class ReplaySettings(Section):
    """Limits per replay pass of a daemon."""

    max_claim: int = setting("OUTBOX_REPLAY_MAX_CLAIM", 5, ge=1)
    """Replay batches taken over per pass."""
    max_start_per_batch: int = setting("OUTBOX_REPLAY_MAX_START_PER_BATCH", 500, ge=1, le=10_000)
    """Rows dispatched per replay batch and pass. Larger: a replay starts faster, but delays new events more."""
    max_poll: int = setting("OUTBOX_REPLAY_MAX_POLL", 25, ge=1)
    """Replay batches checked per pass."""
    max_settle: int = setting("OUTBOX_REPLAY_MAX_SETTLE", 10, ge=1)
    """Replay batches settled per pass."""
    max_polls: int = setting("OUTBOX_REPLAY_MAX_POLLS", 20, ge=1)
    """Checks without progress before a replay batch becomes `timeout`. Its events are still processed; only the batch
    is no longer tracked."""


class WebhookSettings(Section):
    """Notifications about failures, pauses and replays."""

    url: HttpAddress | None = setting(
        "OUTBOX_WEBHOOK_URL", accepts="`https://host/path` without credentials", show=redact_address
    )
    """Address to send webhooks to. Never delays projection. Shown without its path, which is often a secret."""
    secret: SigningSecret | None = setting(
        "OUTBOX_WEBHOOK_SECRET", accepts="the secret on one line; after `whsec_` the key in base64", secret=True
    )
    """Key of the HMAC-SHA256 signature (Standard Webhooks). Without it receivers cannot verify the sender."""
    timeout_seconds: float = setting("OUTBOX_WEBHOOK_TIMEOUT_SECONDS", 5.0, gt=0, le=60.0)
    """Longest duration of one delivery, including DNS and all addresses of the host."""
    retries: int = setting("OUTBOX_WEBHOOK_RETRIES", 3, ge=0, le=10)
    """Quick retries before a delivery is deferred (1 min to 12 h)."""
    allowed_hosts: CommaList = setting("OUTBOX_WEBHOOK_ALLOWED_HOSTS", (), accepts="host names separated by commas")
    """Hosts that a replay's own webhook may use, even at private addresses. Everyone with the right to replay can make
    the daemon send requests to these hosts."""


class ConsoleSettings(Section):
    """The web console and its API."""

    host: str = setting("OUTBOX_CONSOLE_HOST", "127.0.0.1", pattern=_HOST, accepts="a host name or IP address")
    """Address the console listens on. Any address except loopback needs `OUTBOX_CONSOLE_TOKENS_FILE`."""
    port: int = setting("OUTBOX_CONSOLE_PORT", 8090, ge=0, le=65535)
    """Port of the console; 0: any free one."""
    tokens_file: Path | None = setting("OUTBOX_CONSOLE_TOKENS_FILE", accepts="the path of a readable file")
    """File with one `name:role:sha256hex` per line, reread when it changes. `outbox console token NAME --role R` prints
    the token once, and the line for this file."""
    trusted_proxies: NetworkList = setting(
        "OUTBOX_CONSOLE_TRUSTED_PROXIES", (), accepts="IP addresses and networks separated by commas"
    )
    """Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted. If unset behind a proxy, all its clients
    share one rate limit. The proxy must set or extend these headers: a client that can pass them through unchanged can
    forge its address."""


class LogSettings(Section):
    """What is logged, and how."""

    format: Literal["json", "console"] = setting(
        "OUTBOX_LOG_FORMAT", default_log_format, "`json` (`console` on a terminal)"
    )
    """One JSON object per line, or readable text."""
    level: LogLevel = setting("OUTBOX_LOG_LEVEL", "info")
    """Lowest level that is logged. `debug` logs several lines per batch."""


class EmbeddedSettings(Section):
    """The servers that `outbox up` and the tests start."""

    data_dir: Path = setting(
        "OUTBOX_DATA_DIR", default_data_dir, "`outbox` in the user's cache folder", accepts="the path of a folder"
    )
    """Where the embedded servers keep their programs and data. Elasticsearch takes about 1 GB. Remove the folder to
    start over."""
    es_home: Path | None = setting("OUTBOX_ES_HOME", accepts="the path of the folder that holds `lib/` and `modules/`")
    """An unpacked Elasticsearch to use instead of downloading one; OpenSearch with `--product opensearch`."""
    es_version: str = setting(
        "OUTBOX_ES_VERSION", "8", pattern=r"^[89](\.\d+\.\d+)?$", accepts="`8`, `9` or a full version such as `8.14.1`"
    )
    """The version of Elasticsearch to download. That of OpenSearch is in `outbox up --product`."""
