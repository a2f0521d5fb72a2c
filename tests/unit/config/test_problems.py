"""All problems are reported together, by name, with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox.config import load_settings
from outbox.errors import ConfigProblem, ConfigurationError

DSN = "postgresql://app:pw@db:5432/shop"


def problems(**environ: str) -> list[ConfigProblem]:
    return problems_of({"DATABASE_URL": DSN} | environ)


def problems_of(environ: dict[str, str]) -> list[ConfigProblem]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ)
    return list(caught.value.problems)


CLOUD_ID = "shop:Zm91bmQuZXhhbXBsZSRhYmM="  # found.example$abc

# One of each rule: variable, value, a part of the message
WRONG_ALONE = [
    ("DATABASE_URL", "postgresql+asyncpg://db/shop", "postgresql://"),
    ("DATABASE_URL", "just words", "libpq"),
    ("DATABASE_URL", "postgresql://app:50%off@db/shop", "percent-encoded"),
    ("OUTBOX_PREPARE", "perhaps", "boolean"),
    ("ELASTIC_URL", "localhost:9200", "http://"),
    ("ELASTIC_URL", "http://", "no host"),
    ("ELASTIC_URL", "http://es:port", "port"),
    ("ELASTIC_URL", "http://elastic:pw@es:9200", "ELASTIC_USERNAME"),
    ("ELASTIC_URL", "http://es:9200?pretty", "query"),
    ("ELASTIC_URL", "http://a:9200,,http://b:9200", "entry 2 of 3 is empty"),
    ("ELASTIC_URL", "http://a:9200,https://b:9200", "mixes http and https"),
    ("ELASTIC_URL", "http://a:80,http://b,http://A/", "names one address twice: entries 1 and 3"),
    ("ELASTIC_URL", "http://a:9200,http://elastic:pw@b:9200", "entry 2 of 2 holds a user name or password"),
    # found.example$abc:9243$def
    ("ELASTIC_CLOUD_ID", "shop:Zm91bmQuZXhhbXBsZSRhYmM6OTI0MyRkZWY=", "set ELASTIC_URL to the deployment's address"),
    ("ELASTIC_INDEX", "Articles", "lower case"),
    ("ELASTIC_INDEX_MAP", "{article: x}", "not JSON"),
    ("ELASTIC_INDEX_MAP", '{"article": "X"}', "at 'article'"),
    ("ELASTIC_AWS_REGION", "EU Central", "a region such as `eu-central-1`"),
    ("ELASTIC_CA_CERTS", "/no/such/file", "no readable file"),
    ("ELASTIC_TIMEOUT_SECONDS", "0", "greater than 0"),
    ("ELASTIC_TIMEOUT_SECONDS", "nan", "finite"),
    ("ELASTIC_API_KEY", "two\nlines", "one line"),
    ("OUTBOX_DOCUMENT_ID", "{id}", "{entity_id}"),
    ("OUTBOX_DOCUMENTS", "docs; drop table x", "plain name"),
    ("OUTBOX_WORKER_ID", "two words", "without blanks"),
    ("OUTBOX_HTTP_PORT", "http", "integer"),
    ("OUTBOX_CONCURRENCY", "65", "1 to 64"),
    ("OUTBOX_LEASE_SECONDS", "2.9", "greater than or equal to 3"),
    ("OUTBOX_HEARTBEAT_SECONDS", "59.6", "at most 59.5"),
    ("OUTBOX_OUTAGE_POLICY", "ignore", "`pause`"),
    ("OUTBOX_KIND_CONCURRENCY", '{"video": true}', "at 'video'"),
    ("OUTBOX_KIND_RATE", '{"video": NaN}', "finite"),
    ("OUTBOX_WEBHOOK_URL", "ftp://hooks", "http://"),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "10.0.0.1/8", "IP addresses"),
]


@pytest.mark.parametrize(("variable", "value", "said"), WRONG_ALONE)
def test_a_wrong_value_is_reported_once_by_its_name(variable: str, value: str, said: str) -> None:
    (problem,) = problems(**{variable: value})
    assert problem.variable == variable
    assert said in str(problem)
    assert problem.remedy.endswith(".")


WRONG_TOGETHER = [
    ({"ELASTIC_API_KEY": "k", "ELASTIC_USERNAME": "u"}, "ELASTIC_API_KEY"),
    ({"ELASTIC_USERNAME": "u"}, "ELASTIC_USERNAME"),
    ({"ELASTIC_AWS_REGION": "eu-central-1", "ELASTIC_API_KEY": "k"}, "ELASTIC_AWS_REGION"),
    ({"ELASTIC_AWS_REGION": "eu-central-1", "ELASTIC_CLOUD_ID": CLOUD_ID}, "ELASTIC_AWS_REGION"),
    ({"ELASTIC_CLOUD_ID": CLOUD_ID, "ELASTIC_URL": "http://localhost:9200"}, "ELASTIC_CLOUD_ID"),
    ({"OUTBOX_ENTITY_TYPES": "a,b", "OUTBOX_EXCLUDE_ENTITY_TYPES": "b"}, "OUTBOX_ENTITY_TYPES"),
    ({"OUTBOX_BATCH_SIZE": "5", "OUTBOX_BULK_SIZE": "6"}, "OUTBOX_BATCH_SIZE"),
    ({"DATABASE_URL_FILE": "/run/secrets/url"}, "DATABASE_URL"),
]


@pytest.mark.parametrize(("environ", "variable"), WRONG_TOGETHER)
def test_values_that_contradict_each_other_are_reported(environ: dict[str, str], variable: str) -> None:
    (problem,) = problems(**environ)
    assert problem.variable == variable


def test_a_missing_database_is_one_problem_with_a_remedy() -> None:
    (problem,) = problems_of({})
    assert problem.variable == "DATABASE_URL"
    assert "outbox up" in problem.remedy


def test_all_problems_are_reported_together() -> None:
    """But for a rule between two values of which one is wrong already."""
    wrong = {name: value for name, value, _ in WRONG_ALONE if name != "OUTBOX_HEARTBEAT_SECONDS"}
    assert {problem.variable for problem in problems(**wrong, OUTBOX_BACH_SIZE="1")} == {*wrong, "OUTBOX_BACH_SIZE"}


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("OUTBOX_BACH_SIZE", "OUTBOX_BATCH_SIZE?"),
        ("ELASTIC_PASSWORD_FIL", "ELASTIC_PASSWORD_FILE?"),
        ("OUTBOX_QQQQQQQQQQ", "docs/configuration.md"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(name: str, suggestion: str) -> None:
    (problem,) = problems(**{name: "1"})
    assert problem.variable == name
    assert suggestion in problem.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_TEST_DATABASE_URL", "x"),
        ("ELASTIC_APM_SERVER_URL", "http://apm"),
        ("OUTBOX_SERVICE_PORT_METRICS", "9108"),
        ("OUTBOX_PORT_9108_TCP_ADDR", "10.0.0.1"),
        ("OUTBOX_METRICS_PORT", "tcp://10.0.0.1:9108"),
        ("OUTBOX_EMPTY_AND_UNKNOWN", ""),
    ],
)
def test_names_that_are_not_ours_are_left_alone(name: str, value: str) -> None:
    settings = load_settings({"DATABASE_URL": DSN, name: value})
    assert (settings.http.metrics_port, settings.console.port) == (9108, 8090)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"", "empty"), (b" \n", "empty"), (b"\xff\xfe", "UTF-8"), (b"x" * 70_000, "64 KiB")],
)
def test_a_secret_file_that_cannot_be_used_is_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    (problem,) = problems(OUTBOX_WEBHOOK_SECRET_FILE=str(file))
    assert problem.variable == "OUTBOX_WEBHOOK_SECRET_FILE"
    assert said in problem.what
    assert str(file) in problem.what


@pytest.mark.parametrize("secret", ["whsec_", "whsec_ICAg"])
def test_a_webhook_secret_without_a_key_is_refused(secret: str) -> None:
    (problem,) = problems(OUTBOX_WEBHOOK_SECRET=secret)
    assert problem.variable == "OUTBOX_WEBHOOK_SECRET"
    assert "no key" in problem.what
    assert secret not in problem.what
