"""Owns one frozen settings tree, read once, with all problems reported together. It does not act on a setting.

To add a setting: declare it in its section (`connections`, `streaming`, `work` or `service`; `settings` for the top
level). Add a rule to `settings` if it depends on another setting. Then run `scripts/docs`.
"""

from outbox.config.connections import DatabaseSettings, ElasticSettings
from outbox.config.declaration import Variable
from outbox.config.load import load_settings, read_secret_file
from outbox.config.service import (
    ConsoleSettings,
    EmbeddedSettings,
    HealthSettings,
    HttpSettings,
    LogSettings,
    ReplaySettings,
    RetentionSettings,
    WebhookSettings,
)
from outbox.config.settings import VARIABLES, Settings
from outbox.config.streaming import ConnectSettings, KafkaSettings
from outbox.config.work import (
    BatchSettings,
    KindSettings,
    LeaseSettings,
    ReclaimSettings,
    RetrySettings,
    WorkerSettings,
)
from outbox.policy.redact import redact_address, redact_dsn

__all__ = [
    "VARIABLES",
    "BatchSettings",
    "ConnectSettings",
    "ConsoleSettings",
    "DatabaseSettings",
    "ElasticSettings",
    "EmbeddedSettings",
    "HealthSettings",
    "HttpSettings",
    "KafkaSettings",
    "KindSettings",
    "LeaseSettings",
    "LogSettings",
    "ReclaimSettings",
    "ReplaySettings",
    "RetentionSettings",
    "RetrySettings",
    "Settings",
    "Variable",
    "WebhookSettings",
    "WorkerSettings",
    "load_settings",
    "read_secret_file",
    "redact_address",
    "redact_dsn",
]
