"""Owns one frozen settings tree, read once with all problems reported together; it does not act on any setting.

To add a setting: declare it in its section (`connections`, `work`, `service`, or `settings` for the top level),
add a rule to `checks` if it depends on another, and run `scripts/docs`.
"""

from outbox.config.connections import DatabaseSettings, ElasticSettings
from outbox.config.environment import read_secret_file
from outbox.config.load import load_settings
from outbox.config.redaction import redact_address, redact_dsn
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
from outbox.config.setting import Variable
from outbox.config.settings import VARIABLES, Settings
from outbox.config.work import (
    BatchSettings,
    KindSettings,
    LeaseSettings,
    ReclaimSettings,
    RetrySettings,
    WorkerSettings,
)

__all__ = [
    "VARIABLES",
    "BatchSettings",
    "ConsoleSettings",
    "DatabaseSettings",
    "ElasticSettings",
    "EmbeddedSettings",
    "HealthSettings",
    "HttpSettings",
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
