"""Owns the settings tree, the values derived from it, and the rules between settings. Does not read the environment."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, PrivateAttr, SecretStr

from outbox.config.connections import DatabaseSettings, ElasticSettings
from outbox.config.declaration import (
    CommaList,
    RelationName,
    Section,
    Variable,
    is_readable_file,
    no_entries,
    setting,
    short,
    variables_of,
)
from outbox.config.service import (
    ConsoleSettings,
    EmbeddedSettings,
    EventLogSettings,
    HealthSettings,
    HttpSettings,
    LogSettings,
    ReplaySettings,
    RetentionSettings,
    WebhookSettings,
)
from outbox.config.streaming import ConnectSettings, KafkaSettings
from outbox.config.work import (
    BatchSettings,
    KindSettings,
    LeaseSettings,
    ReclaimSettings,
    RetrySettings,
    WorkerSettings,
)
from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.document import Naming
from outbox.policy.redact import MASK

COMPOSED_ID = "{entity_type}:{entity_id}"
Source = Literal["flag", "environment", "file", "default"]


class Settings(Section):
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    elastic: ElasticSettings = Field(default_factory=ElasticSettings)
    source: Literal["postgres", "kafka"] = setting("OUTBOX_SOURCE", "postgres")
    """Where events come from. `kafka` reads them from a topic, and PostgreSQL keeps only the exceptions
    (docs/kafka.md). It needs `pip install 'outbox-projector[kafka]'`."""
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    connect: ConnectSettings = Field(default_factory=ConnectSettings)
    document_id: Literal["{entity_type}:{entity_id}", "{entity_id}"] = setting("OUTBOX_DOCUMENT_ID", COMPOSED_ID)
    """How a document's `_id` is built. Use `{entity_id}` only if ids are unique across all types of an index. A change
    needs a rebuild."""
    documents: RelationName = setting(
        "OUTBOX_DOCUMENTS", "search_documents", accepts="a view's name, with its schema or without"
    )
    """View with the documents of upserts that have no payload. The view gives the current state; a payload gives the
    state when the event was written."""
    projection: str = setting(
        "OUTBOX_PROJECTION",
        "search_index_to_elastic",
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9_.:-]+$",
        accepts="1 to 100 letters, digits, `_`, `.`, `:` or `-`",
    )
    """The `projection` label of all metrics and log lines. Dashboards and alerts select by it: change them together.
    With Kafka also a part of its names, where they are not set: `shop` gives the topic `shop.search_outbox_log`, the
    group `outbox-projector-shop`, the slot `outbox_log_shop` and the connector `outbox-log-shop`."""
    redact_fields: CommaList = setting("OUTBOX_REDACT_FIELDS", (), accepts="field names separated by commas")
    """Field names to mask wherever a payload is shown. Elasticsearch still receives the document unchanged."""
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    batch: BatchSettings = Field(default_factory=BatchSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    reclaim: ReclaimSettings = Field(default_factory=ReclaimSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    kinds: KindSettings = Field(default_factory=KindSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    event_log: EventLogSettings = Field(default_factory=EventLogSettings)
    replay: ReplaySettings = Field(default_factory=ReplaySettings)
    webhook: WebhookSettings = Field(default_factory=WebhookSettings)
    console: ConsoleSettings = Field(default_factory=ConsoleSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    embedded: EmbeddedSettings = Field(default_factory=EmbeddedSettings)
    _sources: Mapping[str, Source] = PrivateAttr(default_factory=no_entries)

    @property
    def request_deadline_seconds(self) -> float:
        """Connect to last byte. A request must end before its lease and before the shutdown grace."""
        grace = self.worker.shutdown_grace_seconds
        return min(self.elastic.timeout_seconds, 0.7 * self.lease.seconds, grace - 5)

    @property
    def naming(self) -> Naming:
        return Naming("{entity_type}" in self.document_id, self.elastic.index_for)

    @property
    def claims_by_type(self) -> bool:
        """Whether these settings need the indexes of `outbox migrate --by-type`."""
        chosen = self.worker.entity_types or self.worker.exclude_entity_types
        return bool(chosen) or self.kinds.limited or len(self.elastic.targets) > 1

    @property
    def known_entity_types(self) -> tuple[str, ...]:
        """Types that the configuration names: they are labels of metrics whenever they were declared."""
        named = {*self.worker.entity_types, *self.elastic.index_map, *self.kinds.concurrency, *self.kinds.rate}
        return tuple(sorted(named))

    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown, for the log's redactor."""
        held = (self.value_of(variable) for variable in VARIABLES.values())
        whole = tuple(value.get_secret_value() for value in held if isinstance(value, SecretStr))
        return (*whole, *self.kafka.secret_options)

    def names(self) -> tuple[str, ...]:
        """Public names that log lines hold."""
        named = (self.projection, self.worker.id, self.documents, self.kafka.topic, self.kafka.group)
        return (*named, *self.elastic.targets, *self.known_entity_types)

    def source_of(self, variable: str) -> Source:
        return self._sources.get(variable, "default")

    def redacted(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"value": shown(variable, self.value_of(variable)), "source": self.source_of(name)}
            for name, variable in VARIABLES.items()
        }

    def value_of(self, variable: Variable) -> Any:
        return getattr(getattr(self, variable.section) if variable.section else self, variable.field)

    def check_console(self) -> None:
        """Refuse a console that others could reach without a token. Only the console process calls this."""
        host, file = self.console.host, self.console.tokens_file
        if file is not None:
            what = "" if is_readable_file(file) else f"names no readable file: {short(file)}"
        elif not is_loopback(host):
            what = f"is required when the console listens on {host}"
        else:
            what = "is required behind OUTBOX_CONSOLE_TRUSTED_PROXIES" if self.console.trusted_proxies else ""
        if what:
            remedy = "Make one with `outbox console token NAME --role R`, or set OUTBOX_CONSOLE_HOST=127.0.0.1."
            raise ConfigurationError([ConfigProblem("OUTBOX_CONSOLE_TOKENS_FILE", what, remedy)])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(variable: Variable, value: Any) -> Any:
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


Rule = Callable[[Settings], Iterator[ConfigProblem]]
RULES: list[tuple[frozenset[str], Rule]] = []


def _rule(*reads: str) -> Callable[[Rule], Rule]:
    """Adds a rule with the variables it reads. It is skipped while one of these is itself invalid."""

    def register(rule: Rule) -> Rule:
        RULES.append((frozenset(reads), rule))
        return rule

    return register


def cross_problems(settings: Settings, wrong: frozenset[str]) -> Iterator[ConfigProblem]:
    for reads, rule in RULES:
        if not reads & wrong:
            yield from rule(settings)


def _alone(first: str, one: object, second: str, other: object) -> Iterator[ConfigProblem]:
    if bool(one) != bool(other):
        yield ConfigProblem(first if one else second, "is set without the other of the two", "Set both or neither.")


@_rule("OUTBOX_LEASE_SECONDS", "OUTBOX_HEARTBEAT_SECONDS")
def _heartbeat_fits_lease(settings: Settings) -> Iterator[ConfigProblem]:
    longest = settings.lease.seconds - 0.5
    if settings.lease.heartbeat_seconds > longest:
        what = f"is {settings.lease.heartbeat_seconds:g}, but the lease is {settings.lease.seconds:g}"
        yield ConfigProblem("OUTBOX_HEARTBEAT_SECONDS", what, f"Use at most {longest:g}, or leave it unset.")


@_rule("OUTBOX_ENTITY_TYPES", "OUTBOX_EXCLUDE_ENTITY_TYPES")
def _types_not_in_both(settings: Settings) -> Iterator[ConfigProblem]:
    both = sorted(set(settings.worker.entity_types) & set(settings.worker.exclude_entity_types))
    if both:
        what = f"names {', '.join(both)[:200]}, which OUTBOX_EXCLUDE_ENTITY_TYPES leaves out"
        yield ConfigProblem("OUTBOX_ENTITY_TYPES", what, "Name each entity type in one of the two.")


@_rule("ELASTIC_API_KEY", "ELASTIC_USERNAME", "ELASTIC_PASSWORD", "KAFKA_CONNECT_USERNAME", "KAFKA_CONNECT_PASSWORD")
def _logins_are_whole(settings: Settings) -> Iterator[ConfigProblem]:
    elastic, connect = settings.elastic, settings.connect
    if elastic.api_key and (elastic.username or elastic.password):
        what = "is set together with ELASTIC_USERNAME or ELASTIC_PASSWORD"
        yield ConfigProblem("ELASTIC_API_KEY", what, "Keep the key, or the user name and password.")
    else:
        yield from _alone("ELASTIC_USERNAME", elastic.username, "ELASTIC_PASSWORD", elastic.password)
    yield from _alone("KAFKA_CONNECT_USERNAME", connect.username, "KAFKA_CONNECT_PASSWORD", connect.password)


@_rule("ELASTIC_CA_CERTS", "KAFKA_CA_CERTS", "KAFKA_CONNECT_CA_CERTS")
def _certificates_exist(settings: Settings) -> Iterator[ConfigProblem]:
    elastic, kafka, connect = settings.elastic.ca_certs, settings.kafka.ca_certs, settings.connect.ca_certs
    for variable, file in {"ELASTIC": elastic, "KAFKA": kafka, "KAFKA_CONNECT": connect}.items():
        if file is not None and not is_readable_file(file):
            what = f"names no readable file: {short(file)}"
            yield ConfigProblem(f"{variable}_CA_CERTS", what, "Give the path of a PEM file.")


@_rule("ELASTIC_AWS_REGION", "ELASTIC_API_KEY", "ELASTIC_USERNAME", "ELASTIC_PASSWORD", "ELASTIC_CLOUD_ID")
def _signature_is_the_only_login(settings: Settings) -> Iterator[ConfigProblem]:
    elastic, region = settings.elastic, "ELASTIC_AWS_REGION"
    if elastic.aws_region is None:
        return
    if elastic.api_key or elastic.username or elastic.password:
        what = "is set together with ELASTIC_API_KEY, ELASTIC_USERNAME or ELASTIC_PASSWORD"
        yield ConfigProblem(region, what, "Keep it for a domain of AWS that checks signatures, else keep the other.")
    elif elastic.cloud_id is not None:
        what = "is set together with ELASTIC_CLOUD_ID"
        yield ConfigProblem(region, what, "Elastic Cloud takes no signatures: unset it.")
    elif find_spec("botocore") is None:
        what = "is set, but botocore is not installed, which signs the requests"
        yield ConfigProblem(region, what, "Run `pip install 'outbox-projector[aws]'`, or leave it unset.")


@_rule("ELASTIC_CLOUD_ID", "ELASTIC_URL")
def _one_address(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.elastic.cloud_id is not None and "url" in settings.elastic.model_fields_set:
        yield ConfigProblem("ELASTIC_CLOUD_ID", "is set together with ELASTIC_URL", "Keep one of them.")


@_rule("OUTBOX_SOURCE", "KAFKA_BOOTSTRAP_SERVERS")
def _stream_has_an_address(settings: Settings) -> Iterator[ConfigProblem]:
    if settings.source != "kafka":
        return
    if settings.kafka.bootstrap_servers is None:
        what = "is required with OUTBOX_SOURCE=kafka"
        yield ConfigProblem("KAFKA_BOOTSTRAP_SERVERS", what, "Give one broker or more, such as `kafka-1:9092`.")
    if find_spec("confluent_kafka") is None:
        what = "is kafka, but confluent-kafka is not installed, which reads it"
        yield ConfigProblem("OUTBOX_SOURCE", what, "Run `pip install 'outbox-projector[kafka]'`.")


@_rule(
    "OUTBOX_SOURCE", "OUTBOX_ENTITY_TYPES", "OUTBOX_EXCLUDE_ENTITY_TYPES", "OUTBOX_KIND_CONCURRENCY", "OUTBOX_KIND_RATE"
)
def _stream_takes_all_types(settings: Settings) -> Iterator[ConfigProblem]:
    """What a member of the group leaves out would be lost: an offset passes for all. A slow type would hold them up."""
    named = {
        "OUTBOX_ENTITY_TYPES": settings.worker.entity_types,
        "OUTBOX_EXCLUDE_ENTITY_TYPES": settings.worker.exclude_entity_types,
        "OUTBOX_KIND_*": settings.kinds.limited,
    }
    for variable, is_set in named.items():
        if settings.source == "kafka" and is_set:
            what = "is set, but a worker of a consumer group gets events of every type"
            yield ConfigProblem(variable, what, "Leave it unset, or give the types a topic of their own.")


@_rule("KAFKA_SECURITY_PROTOCOL", "KAFKA_SASL_MECHANISM", "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD")
def _stream_login_is_whole(settings: Settings) -> Iterator[ConfigProblem]:
    kafka, protocol = settings.kafka, "KAFKA_SECURITY_PROTOCOL"
    given = {"KAFKA_SASL_USERNAME": kafka.sasl_username, "KAFKA_SASL_PASSWORD": kafka.sasl_password}
    for variable, value in given.items():
        if kafka.has_password and not value:
            what = f"is not set, but {protocol} is {kafka.security_protocol}"
            yield ConfigProblem(variable, what, f"Set it, or use {protocol}=SSL.")
        elif value and not kafka.has_password:
            remedy = f"Use {protocol}=SASL_SSL with a KAFKA_SASL_MECHANISM that has passwords, or leave it unset."
            what = f"is set, but {protocol} is {kafka.security_protocol}, or the mechanism takes no password"
            yield ConfigProblem(variable, what, remedy)
