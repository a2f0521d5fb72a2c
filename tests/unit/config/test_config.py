"""Variables are read from flags, environment and files. Their names and defaults are in docs/configuration.md, which
test_docs.py holds to the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outbox.config import VARIABLES, Settings, load_settings
from outbox.config.load import as_environment, known_names

DSN = "postgresql://app:pw@db:5432/shop"

# "found.example:9243$abc$def": host and port, the id of Elasticsearch, the id of Kibana
CLOUD_ID = "shop:Zm91bmQuZXhhbXBsZTo5MjQzJGFiYyRkZWY="

# One of each form: variable, path in the tree, default, another value as text, that value as read
FORMS: list[tuple[str, str, Any, str, Any]] = [
    ("OUTBOX_LISTEN", "worker.listen", False, "on", True),
    ("OUTBOX_BATCH_SIZE", "batch.size", 500, "10000", 10_000),
    ("OUTBOX_HTTP_PORT", "http.port", None, "8080", 8080),
    ("OUTBOX_LEASE_SECONDS", "lease.seconds", 60, "10.5", 10.5),
    ("OUTBOX_DOCUMENT_ID", "document_id", "{entity_type}:{entity_id}", "{entity_id}", "{entity_id}"),
    ("OUTBOX_PROJECTION", "projection", "search_index_to_elastic", "shop", "shop"),
    ("OUTBOX_LOG_LEVEL", "log.level", "info", "DEBUG", "debug"),
    ("KAFKA_SECURITY_PROTOCOL", "kafka.security_protocol", "PLAINTEXT", "ssl", "SSL"),
    ("KAFKA_BOOTSTRAP_SERVERS", "kafka.bootstrap_servers", None, "a:9092, b:9092", "a:9092, b:9092"),
    ("OUTBOX_ENTITY_TYPES", "worker.entity_types", (), "a, b,,a", ("a", "b")),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "console.trusted_proxies", (), "::1,10.0.0.0/8", ("::1", "10.0.0.0/8")),
    ("OUTBOX_KIND_RATE", "kinds.rate", {}, '{"video": 0.5}', {"video": 0.5}),
    ("ELASTIC_INDEX_MAP", "elastic.index_map", {}, '{"article": "articles"}', {"article": "articles"}),
    ("ELASTIC_URL", "elastic.url", "http://localhost:9200", "https://es:9243/", "https://es:9243"),
    ("ELASTIC_CLOUD_ID", "elastic.cloud_id", None, CLOUD_ID, CLOUD_ID),
    ("OUTBOX_WEBHOOK_URL", "webhook.url", None, "https://hooks.example/x", "https://hooks.example/x"),
    ("OUTBOX_CONSOLE_TOKENS_FILE", "console.tokens_file", None, "/etc/tokens", Path("/etc/tokens")),
]
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


def test_every_secret_may_come_from_a_file() -> None:
    assert {name for name, variable in VARIABLES.items() if variable.secret} == SECRETS
    assert {f"{name}_FILE" for name in SECRETS} <= set(known_names())


@pytest.mark.parametrize(("variable", "path", "default", "text", "value"), FORMS)
def test_a_variable_has_its_default_and_is_read_from_the_environment(
    variable: str, path: str, default: Any, text: str, value: Any
) -> None:
    settings = load()
    assert (at(settings, path), settings.source_of(variable)) == (default, "default")
    settings = load(**{variable: text})
    assert (at(settings, path), settings.source_of(variable)) == (value, "environment")


def test_flags_win_over_the_environment_and_none_or_nothing_is_no_flag() -> None:
    flags = {"OUTBOX_BATCH_SIZE": 7, "OUTBOX_ENTITY_TYPES": [], "OUTBOX_LISTEN": None, "DATABASE_URL": DSN}
    settings = load_settings({"OUTBOX_BATCH_SIZE": "9", "OUTBOX_ENTITY_TYPES": "a", "OUTBOX_LISTEN": "yes"}, flags)
    assert (settings.batch.size, settings.source_of("OUTBOX_BATCH_SIZE")) == (7, "flag")
    assert (settings.worker.entity_types, settings.worker.listen) == (("a",), True)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("postgresql+psycopg://app:pw@db/shop", "postgresql://app:pw@db/shop"),
        ("postgres://db/shop?sslmode=require", "postgres://db/shop?sslmode=require"),
        ("host=db dbname=shop password='a b'", "host=db dbname=shop password='a b'"),
        (" postgresql:///shop?host=/run/postgresql\n", "postgresql:///shop?host=/run/postgresql"),
    ],
)
def test_every_form_of_a_connection_string_is_understood(given: str, read: str) -> None:
    database = load(DATABASE_URL=given).database
    assert database.dsn == database.direct_dsn == database.read_dsn == read


def test_a_secret_file_is_read_without_its_newline_and_the_path_of_one_that_is_rotated_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("abc==\n")
    settings = load(ELASTIC_API_KEY_FILE=str(file), OUTBOX_WEBHOOK_SECRET_FILE=str(file))
    assert settings.elastic.api_key is not None
    assert settings.elastic.api_key.get_secret_value() == "abc=="
    assert settings.elastic.api_key_file == file
    assert settings.webhook.secret is not None
    assert settings.source_of("OUTBOX_WEBHOOK_SECRET") == "file"


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


def test_an_empty_value_counts_as_unset() -> None:
    assert load(OUTBOX_BATCH_SIZE="", OUTBOX_HTTP_PORT="  ").batch.size == 500


def test_bulk_size_is_another_name_of_batch_size() -> None:
    assert load(OUTBOX_BULK_SIZE="50").batch.size == 50


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("http://a:9200, http://b:9200/ ,http://c:9200", ("http://a:9200", "http://b:9200", "http://c:9200")),
        ("http://[::1]:9200,http://[fe80::2]:9200", ("http://[::1]:9200", "http://[fe80::2]:9200")),
        ("http://es:9200,http://es:9200/other", ("http://es:9200", "http://es:9200/other")),
    ],
)
def test_several_nodes_are_a_list_of_addresses(given: str, read: tuple[str, ...]) -> None:
    assert load(ELASTIC_URL=given).elastic.urls == read


@pytest.mark.parametrize(
    ("cloud_id", "url"),
    [
        (CLOUD_ID, "https://abc.found.example:9243"),
        ("shop:Zm91bmQuZXhhbXBsZSRhYmM=", "https://abc.found.example:443"),  # found.example$abc
    ],
)
def test_a_cloud_id_holds_an_address(cloud_id: str, url: str) -> None:
    assert load(ELASTIC_CLOUD_ID=cloud_id).elastic.urls == (url,)
