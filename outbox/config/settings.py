"""Owns the settings tree and the values derived from it; it does not read the environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, PrivateAttr, SecretStr

from outbox.config.connections import DatabaseSettings, ElasticSettings
from outbox.config.declaration import Section, Variable, setting, variables_of
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
from outbox.config.values import CommaList, RelationName, is_readable_file, short
from outbox.config.work import (
    BatchSettings,
    KindSettings,
    LeaseSettings,
    ReclaimSettings,
    RetrySettings,
    WorkerSettings,
)
from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.safe_text import MASK

COMPOSED_ID = "{entity_type}:{entity_id}"
Source = Literal["flag", "environment", "file", "default"]


class Settings(Section):
    """Everything that can be set, read once at start and never changed."""

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    elastic: ElasticSettings = Field(default_factory=ElasticSettings)
    document_id: Literal["{entity_type}:{entity_id}", "{entity_id}"] = setting(
        "OUTBOX_DOCUMENT_ID",
        COMPOSED_ID,
        meaning="How a document's `_id` is built.",
        tradeoff="Use `{entity_id}` only if ids are unique across all types of an index. A change needs a rebuild.",
    )
    documents: RelationName = setting(
        "OUTBOX_DOCUMENTS",
        "search_documents",
        meaning="View with the documents of upserts that have no payload.",
        tradeoff="The view gives the current state; a payload gives the state when the event was written.",
        accepts="a view's name, with its schema or without",
    )
    projection: str = setting(
        "OUTBOX_PROJECTION",
        "search_index_to_elastic",
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9_.:-]+$",
        meaning="The `projection` label of all metrics and log lines.",
        tradeoff="Dashboards and alerts select by it: change them together.",
        accepts="1 to 100 letters, digits, `_`, `.`, `:` or `-`",
    )
    redact_fields: CommaList = setting(
        "OUTBOX_REDACT_FIELDS",
        (),
        meaning="Field names to mask wherever a payload is shown.",
        tradeoff="Elasticsearch still receives the document unchanged.",
        accepts="field names separated by commas",
    )
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    batch: BatchSettings = Field(default_factory=BatchSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    reclaim: ReclaimSettings = Field(default_factory=ReclaimSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    kinds: KindSettings = Field(default_factory=KindSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    replay: ReplaySettings = Field(default_factory=ReplaySettings)
    webhook: WebhookSettings = Field(default_factory=WebhookSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    embedded: EmbeddedSettings = Field(default_factory=EmbeddedSettings)
    _sources: Mapping[str, Source] = PrivateAttr(default_factory=lambda: MappingProxyType({}))

    @property
    def request_deadline_seconds(self) -> float:
        """Connect to last byte. A request must end before its lease and before the shutdown grace."""
        grace = self.worker.shutdown_grace_seconds
        return min(self.elastic.timeout_seconds, 0.7 * self.lease.seconds, grace - 5)

    @property
    def claims_by_type(self) -> bool:
        """Whether these settings need the indexes of `outbox migrate --by-type`."""
        chosen = self.worker.entity_types or self.worker.exclude_entity_types
        return bool(chosen) or self.kinds.limited or len(self.elastic.targets) > 1

    @property
    def known_entity_types(self) -> tuple[str, ...]:
        """Types that the configuration names: only these may become a metric label."""
        named = {*self.worker.entity_types, *self.elastic.index_map, *self.kinds.concurrency, *self.kinds.rate}
        return tuple(sorted(named))

    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown, for the log's redactor."""
        held = (self.value_of(variable) for variable in VARIABLES.values())
        return tuple(value.get_secret_value() for value in held if isinstance(value, SecretStr))

    def source_of(self, variable: str) -> Source:
        """Where a value came from: flag, environment, file or default."""
        return self._sources.get(variable, "default")

    def redacted(self) -> dict[str, dict[str, Any]]:
        """Every variable with its value, secrets masked, and where it came from."""
        return {
            variable.name: {
                "value": shown(variable, self.value_of(variable)),
                "source": self.source_of(variable.name),
            }
            for variable in VARIABLES.values()
        }

    def value_of(self, variable: Variable) -> Any:
        """The value behind a variable, secrets still wrapped."""
        return getattr(getattr(self, variable.section) if variable.section else self, variable.field)

    def check_console(self) -> None:
        """Refuse a console that others could reach without a token. Only the console process calls this."""
        problems = _console_problems(self.console)
        if problems:
            raise ConfigurationError(problems)


def _console_problems(console: ConsoleSettings) -> list[ConfigProblem]:
    host, tokens_file = console.host, console.tokens_file
    remedy = "Make one with `outbox console token NAME --role R`, or set OUTBOX_CONSOLE_HOST=127.0.0.1."
    if tokens_file is None and not is_loopback(host):
        return [ConfigProblem("OUTBOX_CONSOLE_TOKENS_FILE", f"is required when the console listens on {host}", remedy)]
    if tokens_file is None and console.trusted_proxies:
        return [
            ConfigProblem("OUTBOX_CONSOLE_TOKENS_FILE", "is required behind OUTBOX_CONSOLE_TRUSTED_PROXIES", remedy)
        ]
    if tokens_file is not None and not is_readable_file(tokens_file):
        what = f"names no readable file: {short(tokens_file)}"
        return [ConfigProblem("OUTBOX_CONSOLE_TOKENS_FILE", what, remedy)]
    return []


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(variable: Variable, value: Any) -> Any:
    """A value in JSON types, secrets masked."""
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    if plain is None:
        return None
    if variable.show is not None:
        return variable.show(str(plain))
    if variable.secret:
        return MASK
    if isinstance(plain, Mapping):
        return dict(plain)
    if isinstance(plain, tuple):
        return list(plain)
    return str(plain) if isinstance(plain, Path) else plain


VARIABLES: Mapping[str, Variable] = MappingProxyType({v.name: v for v in variables_of(Settings)})
