"""Owns the settings of what runs beside the work: pages, console, logs, retention, replays, webhooks, `outbox up`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from outbox.config.setting import CommaList, HttpAddress, NetworkList, Section, SigningSecret, lower_case, setting
from outbox.policy.redact import redact_address

LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(lower_case)]
_HOST = r"^[A-Za-z0-9._:%-]+$"


def default_log_format() -> str:
    """Readable for a person who looks, JSON for everything else. Logs go to stderr."""
    return "console" if sys.stderr is not None and sys.stderr.isatty() else "json"


def default_data_dir() -> Path:
    """The user's cache folder; users without a home (services, containers) get a temporary one.

    For root it is the machine's: servers run unprivileged there, and root's home is closed to them.
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
    """The daemon's own pages."""

    metrics_port: int = setting(
        "OUTBOX_METRICS_PORT",
        9108,
        ge=0,
        le=65535,
        meaning="Port of /metrics, /healthz and /readyz; 0 is off.",
        tradeoff="Each daemon on a host needs its own.",
    )
    metrics_host: str = setting(
        "OUTBOX_METRICS_HOST",
        "127.0.0.1",
        pattern=_HOST,
        meaning="Address these pages listen on.",
        tradeoff="`0.0.0.0` for a scraper elsewhere (containers); the pages have no login.",
        accepts="a host name or IP address",
    )
    port: int | None = setting(
        "OUTBOX_HTTP_PORT",
        ge=0,
        le=65535,
        meaning="Serves /healthz and /readyz there as well.",
        tradeoff="For platforms that give a port to probe; 0 is off.",
    )


class HealthSettings(Section):
    """What /readyz judges."""

    freshness_seconds: float = setting(
        "OUTBOX_FRESHNESS_SECONDS",
        60.0,
        gt=0,
        meaning="Not ready when events are due and none succeeded for this long.",
        tradeoff="Counts only while Elasticsearch answers and nothing is paused.",
    )
    require_es_ready: bool = setting(
        "OUTBOX_REQUIRE_ES_READY",
        False,
        meaning="/readyz is 503 while Elasticsearch is away.",
        tradeoff="False reads `degraded`: a restart of workers would not bring Elasticsearch back.",
    )


class ConsoleSettings(Section):
    """The web console and its API."""

    host: str = setting(
        "OUTBOX_CONSOLE_HOST",
        "127.0.0.1",
        pattern=_HOST,
        meaning="Address the console listens on.",
        tradeoff="Any other than loopback needs `OUTBOX_CONSOLE_TOKENS_FILE`.",
        accepts="a host name or IP address",
    )
    port: int = setting("OUTBOX_CONSOLE_PORT", 8090, ge=0, le=65535, meaning="Its port; 0 takes any free one.")
    tokens_file: Path | None = setting(
        "OUTBOX_CONSOLE_TOKENS_FILE",
        meaning="File with `name:role:sha256hex` a line, reread when it changes.",
        tradeoff="`outbox console token NAME --role R` prints a token once and the line for this file.",
        accepts="the path of a readable file",
    )
    trusted_proxies: NetworkList = setting(
        "OUTBOX_CONSOLE_TRUSTED_PROXIES",
        (),
        meaning="Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
        tradeoff="Unset behind a proxy, all its clients share one client's limits. The proxy must set or extend these "
        "headers: whoever can send them through it unchanged chooses an address of their own.",
        accepts="IP addresses and networks separated by commas",
    )


class LogSettings(Section):
    """How the daemon speaks."""

    format: Literal["json", "console"] = setting(
        "OUTBOX_LOG_FORMAT",
        default_factory=default_log_format,
        default_text="`json` (`console` on a terminal)",
        meaning="One JSON object a line, or text for people.",
    )
    level: LogLevel = setting(
        "OUTBOX_LOG_LEVEL",
        "info",
        meaning="Least important line that is written.",
        tradeoff="`debug` writes several lines a batch.",
    )


class EmbeddedSettings(Section):
    """The servers that `outbox up` and the tests start by themselves."""

    data_dir: Path = setting(
        "OUTBOX_DATA_DIR",
        default_factory=default_data_dir,
        default_text="`outbox` in the user's cache folder",
        meaning="Where the embedded servers keep their programs and data.",
        tradeoff="Elasticsearch takes about 1 GB; remove the folder to start afresh.",
        accepts="the path of a folder",
    )
    es_home: Path | None = setting(
        "OUTBOX_ES_HOME",
        meaning="An unpacked Elasticsearch to use instead of fetching one.",
        accepts="the path of the folder that holds `bin/elasticsearch` or `lib/`",
    )
    es_version: str = setting(
        "OUTBOX_ES_VERSION",
        "8",
        pattern=r"^[89](\.\d+\.\d+)?$",
        meaning="Which Elasticsearch to fetch.",
        accepts="`8`, `9` or a full version such as `8.14.1`",
    )


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
