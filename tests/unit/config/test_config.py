"""Every variable is read, with its default, from flags, environment and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from outbox.config import VARIABLES, Settings, load_settings
from outbox.config.declaration import PLAIN_DSN
from outbox.config.load import as_environment, known_names
from outbox.config.reference import texts_of

DSN = "postgresql://app:pw@db:5432/shop"

# "found.example:9243$abc$def": host and port, the id of Elasticsearch, the id of Kibana
CLOUD_ID = "shop:Zm91bmQuZXhhbXBsZTo5MjQzJGFiYyRkZWY="

# variable, path in the tree, default, another value as text, that value as read
CONTRACT: list[tuple[str, str, Any, str, Any]] = [
    ("OUTBOX_PREPARE", "database.prepare", True, "false", False),
    ("ELASTIC_URL", "elastic.url", "http://localhost:9200", "https://es:9243/", "https://es:9243"),
    ("ELASTIC_CLOUD_ID", "elastic.cloud_id", None, CLOUD_ID, CLOUD_ID),
    ("ELASTIC_PRODUCT", "elastic.product", "auto", "opensearch", "opensearch"),
    ("ELASTIC_INDEX", "elastic.index", "search-index", "wordloom-test-search-index", "wordloom-test-search-index"),
    ("ELASTIC_INDEX_MAP", "elastic.index_map", {}, '{"article": "articles"}', {"article": "articles"}),
    ("ELASTIC_AWS_REGION", "elastic.aws_region", None, "eu-central-1", "eu-central-1"),
    ("ELASTIC_TIMEOUT_SECONDS", "elastic.timeout_seconds", 30, "2.5", 2.5),
    ("OUTBOX_SOURCE", "source", "postgres", "postgres", "postgres"),
    ("KAFKA_BOOTSTRAP_SERVERS", "kafka.bootstrap_servers", None, "a:9092, b:9092", "a:9092, b:9092"),
    ("KAFKA_TOPIC", "kafka.topic", "outbox.search_outbox_log", "shop.events", "shop.events"),
    ("KAFKA_GROUP", "kafka.group", "outbox-projector", "shop-search", "shop-search"),
    ("KAFKA_RECORD_FORM", "kafka.record_form", "event", "router", "router"),
    ("KAFKA_GROUP_PROTOCOL", "kafka.group_protocol", "consumer", "classic", "classic"),
    ("KAFKA_SESSION_TIMEOUT_SECONDS", "kafka.session_timeout_seconds", 45, "10", 10),
    ("KAFKA_MAX_OPEN_EVENTS", "kafka.max_open_events", 1_000, "50", 50),
    ("KAFKA_PREFETCH_BYTES", "kafka.prefetch_bytes", 16_777_216, "65536", 65_536),
    ("KAFKA_SECURITY_PROTOCOL", "kafka.security_protocol", "PLAINTEXT", "ssl", "SSL"),
    ("KAFKA_CONNECT_URL", "connect.url", None, "https://connect:8083/", "https://connect:8083"),
    ("KAFKA_SASL_MECHANISM", "kafka.sasl_mechanism", "SCRAM-SHA-512", "plain", "PLAIN"),
    ("OUTBOX_DOCUMENT_ID", "document_id", "{entity_type}:{entity_id}", "{entity_id}", "{entity_id}"),
    ("OUTBOX_DOCUMENTS", "documents", "search_documents", "shop.my_documents", "shop.my_documents"),
    ("OUTBOX_PROJECTION", "projection", "search_index_to_elastic", "shop", "shop"),
    ("OUTBOX_ENTITY_TYPES", "worker.entity_types", (), "a, b,,a", ("a", "b")),
    ("OUTBOX_EXCLUDE_ENTITY_TYPES", "worker.exclude_entity_types", (), "c", ("c",)),
    ("OUTBOX_MAX_RUNTIME_SECONDS", "worker.max_runtime_seconds", 0, "90", 90),
    ("OUTBOX_METRICS_PORT", "http.metrics_port", 9108, "9109", 9109),
    ("OUTBOX_METRICS_HOST", "http.metrics_host", "127.0.0.1", "0.0.0.0", "0.0.0.0"),
    ("OUTBOX_HTTP_PORT", "http.port", None, "8080", 8080),
    ("OUTBOX_CONCURRENCY", "worker.concurrency", 2, "64", 64),
    ("OUTBOX_BATCH_SIZE", "batch.size", 500, "10000", 10_000),
    ("OUTBOX_BATCH_BYTES", "batch.bytes", 8_388_608, "1048576", 1_048_576),
    ("OUTBOX_MAX_DOCUMENT_BYTES", "batch.max_document_bytes", 33_554_432, "104857600", 104_857_600),
    ("OUTBOX_POLL_INTERVAL_SECONDS", "worker.poll_interval_seconds", 0.5, "1.5", 1.5),
    ("OUTBOX_LISTEN", "worker.listen", False, "on", True),
    ("OUTBOX_LEASE_SECONDS", "lease.seconds", 60, "10", 10),
    ("OUTBOX_HEARTBEAT_SECONDS", "lease.heartbeat_seconds", 20, "7", 7),
    ("OUTBOX_RECLAIM_INTERVAL_SECONDS", "reclaim.interval_seconds", 5, "2", 2),
    ("OUTBOX_RECLAIM_BATCH_SIZE", "reclaim.batch_size", 500, "7", 7),
    ("OUTBOX_MAX_PROCESSING_SECONDS", "reclaim.max_processing_seconds", 600, "60", 60),
    ("OUTBOX_MAX_ATTEMPTS", "retry.max_attempts", 10, "3", 3),
    ("OUTBOX_BASE_BACKOFF_SECONDS", "retry.base_backoff_seconds", 1, "0.2", 0.2),
    ("OUTBOX_MAX_BACKOFF_SECONDS", "retry.max_backoff_seconds", 300, "1.0", 1),
    ("OUTBOX_OUTAGE_POLICY", "retry.outage_policy", "count", "pause", "pause"),
    ("OUTBOX_KIND_CONCURRENCY", "kinds.concurrency", {}, '{"video": 1}', {"video": 1}),
    ("OUTBOX_KIND_CONCURRENCY_DEFAULT", "kinds.concurrency_default", None, "5", 5),
    ("OUTBOX_KIND_RATE", "kinds.rate", {}, '{"video": 0.5}', {"video": 0.5}),
    ("OUTBOX_KIND_RATE_DEFAULT", "kinds.rate_default", None, "2.5", 2.5),
    ("OUTBOX_SHUTDOWN_GRACE_SECONDS", "worker.shutdown_grace_seconds", 25, "8", 8),
    ("OUTBOX_FRESHNESS_SECONDS", "health.freshness_seconds", 60, "90", 90),
    ("OUTBOX_REQUIRE_ES_READY", "health.require_es_ready", False, "1", True),
    ("OUTBOX_RETENTION_DAYS", "retention.days", 0, "7", 7),
    ("OUTBOX_AUDIT_TTL_DAYS", "retention.audit_ttl_days", 30, "0", 0),
    ("OUTBOX_PRUNE_INTERVAL_SECONDS", "retention.prune_interval_seconds", 60, "5", 5),
    ("OUTBOX_PRUNE_BATCH_SIZE", "retention.prune_batch_size", 500, "50", 50),
    ("OUTBOX_EVENT_LOG_DAYS", "event_log.days", 3, "7", 7),
    ("OUTBOX_EVENT_LOG_SLOT", "event_log.slot", "outbox_log", "shop_log", "shop_log"),
    ("OUTBOX_REPLAY_MAX_CLAIM", "replay.max_claim", 5, "6", 6),
    ("OUTBOX_REPLAY_MAX_START_PER_BATCH", "replay.max_start_per_batch", 500, "10", 10),
    ("OUTBOX_REPLAY_MAX_POLL", "replay.max_poll", 25, "26", 26),
    ("OUTBOX_REPLAY_MAX_SETTLE", "replay.max_settle", 10, "11", 11),
    ("OUTBOX_REPLAY_MAX_POLLS", "replay.max_polls", 20, "21", 21),
    ("OUTBOX_WEBHOOK_URL", "webhook.url", None, "https://hooks.example/x", "https://hooks.example/x"),
    ("OUTBOX_WEBHOOK_TIMEOUT_SECONDS", "webhook.timeout_seconds", 5, "1", 1),
    ("OUTBOX_WEBHOOK_RETRIES", "webhook.retries", 3, "0", 0),
    ("OUTBOX_WEBHOOK_ALLOWED_HOSTS", "webhook.allowed_hosts", (), "a.example,b", ("a.example", "b")),
    ("OUTBOX_CONSOLE_HOST", "console.host", "127.0.0.1", "::1", "::1"),
    ("OUTBOX_CONSOLE_PORT", "console.port", 8090, "8091", 8091),
    ("OUTBOX_CONSOLE_TOKENS_FILE", "console.tokens_file", None, "/etc/tokens", Path("/etc/tokens")),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "console.trusted_proxies", (), "::1,10.0.0.0/8", ("::1", "10.0.0.0/8")),
    ("OUTBOX_REDACT_FIELDS", "redact_fields", (), "email,phone", ("email", "phone")),
    ("OUTBOX_LOG_LEVEL", "log.level", "info", "DEBUG", "debug"),
    ("OUTBOX_ES_HOME", "embedded.es_home", None, "/opt/es", Path("/opt/es")),
    ("OUTBOX_ES_VERSION", "embedded.es_version", "8", "9.4.3", "9.4.3"),
]
# Their defaults depend on the machine, on other settings or on a second variable; tested separately below.
APART = {
    "DATABASE_URL", "OUTBOX_DIRECT_DATABASE_URL", "OUTBOX_READ_DATABASE_URL", "ELASTIC_API_KEY", "ELASTIC_USERNAME",
    "ELASTIC_PASSWORD", "ELASTIC_AWS_SERVICE", "ELASTIC_CA_CERTS", "KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD",
    "KAFKA_CLIENT_OPTIONS", "KAFKA_CA_CERTS", "KAFKA_CLIENT_CERT", "KAFKA_CLIENT_KEY", "KAFKA_CONNECT_USERNAME",
    "KAFKA_CONNECT_PASSWORD", "KAFKA_CONNECT_CA_CERTS", "OUTBOX_WORKER_ID", "OUTBOX_WEBHOOK_SECRET",
    "OUTBOX_LOG_FORMAT", "OUTBOX_DATA_DIR",
}  # fmt: skip
SECRETS = {
    "DATABASE_URL", "OUTBOX_DIRECT_DATABASE_URL", "OUTBOX_READ_DATABASE_URL", "ELASTIC_API_KEY", "ELASTIC_PASSWORD",
    "KAFKA_SASL_PASSWORD", "KAFKA_CLIENT_OPTIONS", "KAFKA_CONNECT_PASSWORD", "OUTBOX_WEBHOOK_SECRET",
}  # fmt: skip


def load(**environ: str) -> Settings:
    return load_settings({"DATABASE_URL": DSN} | environ)


def at(settings: Settings, path: str) -> Any:
    value: Any = settings
    for step in path.split("."):
        value = getattr(value, step)
    return value


def test_the_settings_are_those_of_the_contract_and_no_others() -> None:
    assert set(VARIABLES) == {row[0] for row in CONTRACT} | APART


def test_every_secret_may_come_from_a_file() -> None:
    assert {name for name, variable in VARIABLES.items() if variable.secret} == SECRETS
    assert {f"{name}_FILE" for name in SECRETS} <= set(known_names())


@pytest.mark.parametrize(("variable", "path", "default"), [row[:3] for row in CONTRACT])
def test_a_variable_has_the_default_of_the_contract(variable: str, path: str, default: Any) -> None:
    settings = load()
    assert at(settings, path) == default
    assert settings.source_of(variable) == "default"


@pytest.mark.parametrize(("variable", "path", "text", "value"), [(v, p, t, x) for v, p, _, t, x in CONTRACT])
def test_a_variable_is_read_from_the_environment(variable: str, path: str, text: str, value: Any) -> None:
    settings = load(**{variable: text})
    assert at(settings, path) == value
    assert settings.source_of(variable) == "environment"


@pytest.mark.parametrize("variable", sorted(VARIABLES))
def test_a_variable_says_what_it_means_and_what_it_accepts(variable: str) -> None:
    about = VARIABLES[variable]
    section = type(getattr(Settings(), about.section)) if about.section else Settings
    assert texts_of(section)[about.field].endswith(".")
    assert about.accepts
    assert about.default


def test_flags_win_over_the_environment_and_none_or_nothing_is_no_flag() -> None:
    flags = {"OUTBOX_BATCH_SIZE": 7, "OUTBOX_ENTITY_TYPES": [], "OUTBOX_LISTEN": None, "DATABASE_URL": DSN}
    settings = load_settings({"OUTBOX_BATCH_SIZE": "9", "OUTBOX_ENTITY_TYPES": "a", "OUTBOX_LISTEN": "yes"}, flags)
    assert (settings.batch.size, settings.source_of("OUTBOX_BATCH_SIZE")) == (7, "flag")
    assert (settings.worker.entity_types, settings.worker.listen) == (("a",), True)


def test_a_repeated_flag_is_a_list() -> None:
    settings = load_settings({"DATABASE_URL": DSN}, {"OUTBOX_ENTITY_TYPES": ["a", "b"]})
    assert settings.worker.entity_types == ("a", "b")


def test_a_flag_that_is_no_variable_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        load_settings({"DATABASE_URL": DSN}, {"batch_size": 1})


def test_an_empty_value_counts_as_unset() -> None:
    assert load(OUTBOX_BATCH_SIZE="", OUTBOX_HTTP_PORT="  ").batch.size == 500


def test_the_environment_of_the_process_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", DSN)
    monkeypatch.setenv("OUTBOX_PROJECTION", "from-the-process")
    assert load_settings().projection == "from-the-process"


def test_the_service_of_a_signature_is_read_with_its_region() -> None:
    assert load(ELASTIC_AWS_REGION="eu-central-1").elastic.aws_service == "es"
    assert load(ELASTIC_AWS_REGION="x", ELASTIC_AWS_SERVICE="execute-api").elastic.aws_service == "execute-api"


def test_bulk_size_is_another_name_of_batch_size() -> None:
    assert load(OUTBOX_BULK_SIZE="50").batch.size == 50
    assert load(OUTBOX_BULK_SIZE="50", OUTBOX_BATCH_SIZE="50").batch.size == 50


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (DSN, DSN),
        ("postgresql+psycopg://app:pw@db/shop", "postgresql://app:pw@db/shop"),
        ("postgres://db/shop?sslmode=require", "postgres://db/shop?sslmode=require"),
        ("host=db dbname=shop password='a b'", "host=db dbname=shop password='a b'"),
        (" postgresql:///shop?host=/run/postgresql\n", "postgresql:///shop?host=/run/postgresql"),
    ],
)
def test_every_form_of_a_connection_string_is_understood(given: str, read: str) -> None:
    assert load(DATABASE_URL=given).database.dsn == read


@given(st.from_regex(PLAIN_DSN, fullmatch=True))
def test_libpq_reads_every_plain_connection_string_that_is_not_shown_to_it(dsn: str) -> None:
    conninfo_to_dict(dsn)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://es:9200/", ("http://es:9200",)),
        ("http://a:9200, http://b:9200/ ,http://c:9200", ("http://a:9200", "http://b:9200", "http://c:9200")),
        ("https://a,https://b:9243/search/", ("https://a", "https://b:9243/search")),
        ("http://[::1]:9200,http://[fe80::2]:9200", ("http://[::1]:9200", "http://[fe80::2]:9200")),
        ("http://es:9200,http://es:9201,http://es:9200/other", None),
    ],
)
def test_several_nodes_are_a_list_of_addresses(given: str, read: tuple[str, ...] | None) -> None:
    assert load(ELASTIC_URL=given).elastic.urls == (read or tuple(given.split(",")))


@pytest.mark.parametrize(
    ("cloud_id", "url"),
    [
        (CLOUD_ID, "https://abc.found.example:9243"),
        ("shop:Zm91bmQuZXhhbXBsZSRhYmM=", "https://abc.found.example:443"),  # found.example$abc
    ],
)
def test_a_cloud_id_holds_an_address(cloud_id: str, url: str) -> None:
    assert load(ELASTIC_CLOUD_ID=cloud_id).elastic.urls == (url,)


def test_the_direct_database_is_the_database_unless_given() -> None:
    assert load().database.direct_dsn == DSN
    other = "postgresql://direct/shop"
    assert load(OUTBOX_DIRECT_DATABASE_URL=other).database.direct_dsn == other
    assert load().database.read_dsn == DSN
    assert load(OUTBOX_READ_DATABASE_URL=other).database.read_dsn == other


def test_a_secret_file_is_read_without_its_newline_and_its_path_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("abc==\n")
    settings = load(ELASTIC_API_KEY_FILE=str(file))
    assert settings.elastic.api_key is not None
    assert settings.elastic.api_key.get_secret_value() == "abc=="
    assert settings.elastic.api_key_file == file
    assert settings.source_of("ELASTIC_API_KEY") == "file"


@pytest.mark.parametrize("variable", sorted(SECRETS))
def test_the_path_of_every_secret_file_is_kept_beside_the_secret(variable: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text('{"client.rack": "a"}' if variable == "KAFKA_CLIENT_OPTIONS" else "postgresql://h/db")
    environ = {"DATABASE_URL": DSN, f"{variable}_FILE": str(file), "ELASTIC_USERNAME": "elastic"}
    if variable != "ELASTIC_PASSWORD":
        del environ["ELASTIC_USERNAME"]
    if variable == "DATABASE_URL":
        del environ["DATABASE_URL"]
    if variable == "KAFKA_CONNECT_PASSWORD":
        environ |= {"KAFKA_CONNECT_USERNAME": "outbox"}
    if variable == "KAFKA_SASL_PASSWORD":
        environ |= {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_USERNAME": "projector"}
    settings = load_settings(environ)
    assert at(settings, f"{VARIABLES[variable].path}_file") == file


def test_settings_cannot_be_changed() -> None:
    settings = load(OUTBOX_KIND_RATE='{"a": 1}')
    with pytest.raises(ValueError, match="frozen"):
        settings.batch.size = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.kinds.rate["a"] = 2  # type: ignore[index]


def test_settings_as_variables_give_the_same_settings_elsewhere(tmp_path: Path) -> None:
    """What a process of ours gets: secrets from files too, and nothing that was left out."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    given = {
        "ELASTIC_INDEX_MAP": '{"article": "articles"}',
        "ELASTIC_USERNAME": "elastic",
        "ELASTIC_PASSWORD_FILE": str(secret),
        "OUTBOX_LISTEN": "true",
        "OUTBOX_ENTITY_TYPES": "article,note",
        "OUTBOX_LEASE_SECONDS": "90.5",
        "OUTBOX_CONSOLE_TOKENS_FILE": str(secret),
    }
    settings = load(**given)
    made = as_environment(settings)
    assert made.keys() == {name.replace("PASSWORD_FILE", "PASSWORD") for name in given} | {"DATABASE_URL"}
    again = load_settings(made)
    compared = [each for name, each in VARIABLES.items() if name != "OUTBOX_WORKER_ID"]  # made at every start
    assert [again.value_of(each) for each in compared] == [settings.value_of(each) for each in compared]
