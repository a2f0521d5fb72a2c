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

# variable, value, a part of the message
WRONG_ALONE = [
    ("DATABASE_URL", "mysql://db/shop", "postgresql://"),
    ("DATABASE_URL", "postgresql+asyncpg://db/shop", "postgresql://"),
    ("DATABASE_URL", "just words", "libpq"),
    ("DATABASE_URL", "postgresql://app:50%off@db/shop", "percent-encoded"),
    ("OUTBOX_DIRECT_DATABASE_URL", "http://db", "postgresql://"),
    ("OUTBOX_READ_DATABASE_URL", "http://db", "postgresql://"),
    ("OUTBOX_PREPARE", "perhaps", "boolean"),
    ("ELASTIC_URL", "localhost:9200", "http://"),
    ("ELASTIC_URL", "es", "http://"),
    ("ELASTIC_URL", "http://", "no host"),
    ("ELASTIC_URL", "http://es:port", "port"),
    ("ELASTIC_URL", "http://elastic:pw@es:9200", "ELASTIC_USERNAME"),
    ("ELASTIC_URL", "http://es:9200?pretty", "query"),
    ("ELASTIC_URL", "http://a:9200,,http://b:9200", "entry 2 of 3 is empty"),
    ("ELASTIC_URL", "http://a:9200,", "entry 2 of 2 is empty"),
    ("ELASTIC_URL", "http://a:9200,b:9200", "entry 2 of 2 must begin"),
    ("ELASTIC_URL", "http://a:9200,https://b:9200", "mixes http and https"),
    ("ELASTIC_URL", "http://a:80,http://b,http://A/", "names one address twice: entries 1 and 3"),
    ("ELASTIC_URL", "http://a:9200,http://elastic:pw@b:9200", "entry 2 of 2 holds a user name or password"),
    ("ELASTIC_URL", "https://abc.eu-central-1.aoss.amazonaws.com", "OpenSearch Serverless"),
    ("ELASTIC_URL", "https://abc.cn-north-1.AOSS.amazonaws.com.cn:443/", "OpenSearch Serverless"),
    ("ELASTIC_CLOUD_ID", "shop", "is not a Cloud ID"),
    # found.example$abc:9243$def
    ("ELASTIC_CLOUD_ID", "shop:Zm91bmQuZXhhbXBsZSRhYmM6OTI0MyRkZWY=", "set ELASTIC_URL to the deployment's address"),
    ("ELASTIC_CLOUD_ID", "Zm91bmQuZXhhbXBsZSRhYmM=", "is not a Cloud ID"),  # found.example$abc, without a name
    ("ELASTIC_CLOUD_ID", "shop:!!!", "is not a Cloud ID"),
    ("ELASTIC_CLOUD_ID", "shop:Zm91bmQuZXhhbXBsZSQ=", "is not a Cloud ID"),  # found.example$
    ("ELASTIC_CLOUD_ID", "shop:Zm91bmQuZXhhbXBsZTo5OTk5OSRhYmM=", "is not a Cloud ID"),  # found.example:99999$abc
    ("ELASTIC_INDEX", "Articles", "lower case"),
    ("ELASTIC_INDEX", "articles-*", "must not contain"),
    ("ELASTIC_INDEX", "a,b", "must not contain"),
    ("ELASTIC_INDEX", "a b", "must not contain"),
    ("ELASTIC_INDEX", "cluster:articles", "must not contain"),
    ("ELASTIC_INDEX", "_all", "must not begin"),
    ("ELASTIC_INDEX", "-x", "must not begin"),
    ("ELASTIC_INDEX", "..", "must be 1 to 255"),
    ("ELASTIC_INDEX", "é" * 200, "must be 1 to 255"),
    ("ELASTIC_INDEX_MAP", "{article: x}", "not JSON"),
    ("ELASTIC_INDEX_MAP", '["x"]', "not an object"),
    ("ELASTIC_INDEX_MAP", '{"article": "X"}', "at 'article'"),
    ("ELASTIC_INDEX_MAP", '{"article": 5}', "at 'article'"),
    ("ELASTIC_INDEX_MAP", '{"a": "x", "a": "y"}', "more than once"),
    ("ELASTIC_AWS_REGION", "EU Central", "a region such as `eu-central-1`"),
    ("ELASTIC_AWS_SERVICE", "aoss", "OpenSearch Serverless"),
    ("ELASTIC_CA_CERTS", "/no/such/file", "no readable file"),
    ("ELASTIC_TIMEOUT_SECONDS", "0", "greater than 0"),
    ("ELASTIC_TIMEOUT_SECONDS", "nan", "finite"),
    ("ELASTIC_API_KEY", "two\nlines", "one line"),
    ("OUTBOX_DOCUMENT_ID", "{id}", "{entity_id}"),
    ("OUTBOX_DOCUMENTS", "docs; drop table x", "plain name"),
    ("OUTBOX_DOCUMENTS", '"Docs"', "plain name"),
    ("OUTBOX_PROJECTION", "my projection", "letters"),
    ("OUTBOX_WORKER_ID", "w" * 121, "120"),
    ("OUTBOX_WORKER_ID", "two words", "without blanks"),
    ("OUTBOX_MAX_RUNTIME_SECONDS", "-1", "greater than or equal to 0"),
    ("OUTBOX_METRICS_PORT", "65536", "65535"),
    ("OUTBOX_METRICS_PORT", "-1", "greater than or equal to 0"),
    ("OUTBOX_METRICS_HOST", "http://0.0.0.0", "IP address"),
    ("OUTBOX_HTTP_PORT", "http", "integer"),
    ("OUTBOX_HTTP_PORT", "9108", "same as OUTBOX_METRICS_PORT"),
    ("OUTBOX_CONCURRENCY", "0", "1 to 64"),
    ("OUTBOX_CONCURRENCY", "65", "1 to 64"),
    ("OUTBOX_BATCH_SIZE", "0", "1 to 10000"),
    ("OUTBOX_BATCH_SIZE", "10001", "1 to 10000"),
    ("OUTBOX_BATCH_SIZE", "1.5", "integer"),
    ("OUTBOX_POLL_INTERVAL_SECONDS", "-0.5", "greater than 0"),
    ("OUTBOX_LEASE_SECONDS", "2.9", "greater than or equal to 3"),
    ("OUTBOX_LEASE_SECONDS", "inf", "finite"),
    ("OUTBOX_LEASE_SECONDS", "1e300", "less than or equal"),
    ("OUTBOX_HEARTBEAT_SECONDS", "59.6", "at most 59.5"),
    ("OUTBOX_HEARTBEAT_SECONDS", "nan", "finite"),
    ("OUTBOX_SHUTDOWN_GRACE_SECONDS", "7.9", "greater than or equal to 8"),
    ("OUTBOX_MAX_ATTEMPTS", "0", "greater than or equal to 1"),
    ("OUTBOX_BASE_BACKOFF_SECONDS", "301", "above OUTBOX_MAX_BACKOFF_SECONDS"),
    ("OUTBOX_OUTAGE_POLICY", "ignore", "`pause`"),
    ("OUTBOX_KIND_CONCURRENCY", '{"video": 0}', "at 'video'"),
    ("OUTBOX_KIND_CONCURRENCY", '{"video": true}', "at 'video'"),
    ("OUTBOX_KIND_CONCURRENCY", '{"": 1}', "at least 1 character"),
    ("OUTBOX_KIND_RATE", '{"video": NaN}', "finite"),
    ("OUTBOX_KIND_RATE_DEFAULT", "inf", "finite"),
    ("OUTBOX_RETENTION_DAYS", "-1", "greater than or equal to 0"),
    ("OUTBOX_EVENT_LOG_SLOT", "Outbox-Log", "lower case"),
    ("OUTBOX_REPLAY_MAX_POLLS", "0", "greater than or equal to 1"),
    ("OUTBOX_WEBHOOK_URL", "ftp://hooks", "http://"),
    ("OUTBOX_WEBHOOK_RETRIES", "-1", "greater than or equal to 0"),
    ("OUTBOX_CONSOLE_PORT", "99999", "65535"),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "proxy.internal", "IP addresses"),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "10.0.0.1/8", "IP addresses"),
    ("OUTBOX_CONSOLE_TRUSTED_PROXIES", "*", "IP addresses"),
    ("OUTBOX_LOG_FORMAT", "xml", "`json`"),
    ("OUTBOX_LOG_LEVEL", "loud", "`debug`"),
    ("OUTBOX_ES_VERSION", "7", "`8`"),
]


@pytest.mark.parametrize(("variable", "value", "said"), WRONG_ALONE)
def test_a_wrong_value_is_reported_once_by_its_name(variable: str, value: str, said: str) -> None:
    extra = {"ELASTIC_URL": "https://es"} if variable == "ELASTIC_CA_CERTS" else {}
    (problem,) = problems(**{**extra, variable: value})
    assert problem.variable == variable
    assert said in str(problem)
    assert problem.remedy.endswith(".")


WRONG_TOGETHER = [
    ({"ELASTIC_API_KEY": "k", "ELASTIC_USERNAME": "u", "ELASTIC_PASSWORD": "p"}, "ELASTIC_API_KEY"),
    ({"ELASTIC_API_KEY": "k", "ELASTIC_USERNAME": "u"}, "ELASTIC_API_KEY"),
    ({"ELASTIC_USERNAME": "u"}, "ELASTIC_PASSWORD"),
    ({"ELASTIC_PASSWORD": "p"}, "ELASTIC_USERNAME"),
    ({"ELASTIC_AWS_REGION": "eu-central-1", "ELASTIC_API_KEY": "k"}, "ELASTIC_AWS_REGION"),
    (
        {"ELASTIC_AWS_REGION": "eu-central-1", "ELASTIC_USERNAME": "u", "ELASTIC_PASSWORD": "p"},
        "ELASTIC_AWS_REGION",
    ),
    ({"ELASTIC_AWS_REGION": "eu-central-1", "ELASTIC_CLOUD_ID": CLOUD_ID}, "ELASTIC_AWS_REGION"),
    ({"ELASTIC_AWS_SERVICE": "execute-api"}, "ELASTIC_AWS_SERVICE"),
    ({"ELASTIC_CA_CERTS": __file__}, "ELASTIC_CA_CERTS"),
    ({"ELASTIC_CA_CERTS": __file__, "ELASTIC_URL": "http://a:9200,http://b:9200"}, "ELASTIC_CA_CERTS"),
    ({"ELASTIC_CLOUD_ID": CLOUD_ID, "ELASTIC_URL": "http://localhost:9200"}, "ELASTIC_CLOUD_ID"),
    ({"OUTBOX_ENTITY_TYPES": "a,b", "OUTBOX_EXCLUDE_ENTITY_TYPES": "b"}, "OUTBOX_ENTITY_TYPES"),
    ({"OUTBOX_ENTITY_TYPES": "a:b"}, "OUTBOX_ENTITY_TYPES"),
    ({"ELASTIC_INDEX_MAP": '{"a:b": "x"}'}, "ELASTIC_INDEX_MAP"),
    ({"OUTBOX_LEASE_SECONDS": "10", "OUTBOX_HEARTBEAT_SECONDS": "10"}, "OUTBOX_HEARTBEAT_SECONDS"),
    ({"OUTBOX_BATCH_SIZE": "5", "OUTBOX_BULK_SIZE": "6"}, "OUTBOX_BATCH_SIZE"),
    ({"DATABASE_URL_FILE": "/run/secrets/url"}, "DATABASE_URL"),
    ({"ELASTIC_API_KEY": "k", "ELASTIC_API_KEY_FILE": "/run/secrets/key"}, "ELASTIC_API_KEY"),
]


@pytest.mark.parametrize(("environ", "variable"), WRONG_TOGETHER)
def test_values_that_contradict_each_other_are_reported(environ: dict[str, str], variable: str) -> None:
    (problem,) = problems(**environ)
    assert problem.variable == variable


def test_a_region_without_botocore_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.config.settings.find_spec", lambda _: None)
    (problem,) = problems(ELASTIC_AWS_REGION="eu-central-1")
    assert problem.variable == "ELASTIC_AWS_REGION"
    assert "pip install 'outbox-projector[aws]'" in problem.remedy


def test_a_missing_database_is_one_problem_with_a_remedy() -> None:
    (problem,) = problems_of({})
    assert problem.variable == "DATABASE_URL"
    assert "outbox up" in problem.remedy


def test_all_problems_are_reported_together() -> None:
    wrong = {variable: value for variable, value, _ in WRONG_ALONE} | {"OUTBOX_HTTP_PORT": "http"}
    assert {problem.variable for problem in problems(**wrong, OUTBOX_BACH_SIZE="1")} == {*wrong, "OUTBOX_BACH_SIZE"}


def test_every_wrong_entry_of_a_map_is_reported() -> None:
    found = problems(OUTBOX_KIND_RATE='{"a": 0, "b": "fast", "c": 1}')
    assert [problem.what.split()[-1] for problem in found] == ["'a'", "'b'"]


def test_a_rule_between_two_values_is_silent_while_one_of_them_is_wrong() -> None:
    (problem,) = problems(OUTBOX_LEASE_SECONDS="ten", OUTBOX_HEARTBEAT_SECONDS="100")
    assert problem.variable == "OUTBOX_LEASE_SECONDS"


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("OUTBOX_BACH_SIZE", "OUTBOX_BATCH_SIZE"),
        ("OUTBOX_LEASE_SECS", "OUTBOX_LEASE_SECONDS"),
        ("ELASTIC_URI", "ELASTIC_URL"),
        ("ELASTIC_APIKEY", "ELASTIC_API_KEY"),
        ("OUTBOX_BATCH_SIZE_FILE", "OUTBOX_BATCH_SIZE"),
        ("ELASTIC_PASSWORD_FIL", "ELASTIC_PASSWORD_FILE"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(name: str, suggestion: str) -> None:
    (problem,) = problems(**{name: "1"})
    assert problem.variable == name
    assert f"{suggestion}?" in problem.remedy


def test_an_unknown_name_like_no_other_points_to_the_docs() -> None:
    (problem,) = problems(OUTBOX_QQQQQQQQQQ="1")
    assert "docs/configuration.md" in problem.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_TEST_DATABASE_URL", "x"),
        ("ELASTIC_APM_SERVER_URL", "http://apm"),
        ("OUTBOX_SERVICE_HOST", "10.0.0.1"),
        ("OUTBOX_SERVICE_PORT", "9108"),
        ("OUTBOX_SERVICE_PORT_METRICS", "9108"),
        ("OUTBOX_PORT", "tcp://10.0.0.1:9108"),
        ("OUTBOX_PORT_9108_TCP", "tcp://10.0.0.1:9108"),
        ("OUTBOX_PORT_9108_TCP_ADDR", "10.0.0.1"),
        ("ELASTIC_ES_HTTP_SERVICE_HOST", "10.0.0.1"),
        ("OUTBOX_METRICS_PORT", "tcp://10.0.0.1:9108"),
        ("OUTBOX_CONSOLE_PORT", "tcp://10.0.0.1:8090"),
        ("PATH", "/bin"),
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


def test_a_database_file_that_is_missing_is_one_problem(tmp_path: Path) -> None:
    (problem,) = problems_of({"DATABASE_URL_FILE": str(tmp_path / "missing")})
    assert problem.variable == "DATABASE_URL_FILE"
