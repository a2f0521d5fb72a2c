"""Settings as librdkafka takes them: what is never left to it, and secrets that go nowhere else."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from pydantic import SecretStr

from outbox.config import KafkaSettings, load_settings
from outbox.config.streaming import OURS
from outbox.errors import ConfigurationError
from outbox.kafka.connection import consumer_options, open_consumer, options
from tests.fixtures.waiting import eventually

DSN = "postgresql://app:pw@db:5432/shop"
KAFKA = {"DATABASE_URL": DSN, "OUTBOX_SOURCE": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "a:9092"}


def settings(**values: object) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": "a:9092", **values})


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_librdkafka_takes_what_may_be_set_and_neither_commits_nor_chooses_an_offset(protocol: str) -> None:
    """It checks its options when a consumer is made; no broker is asked for that."""
    found = consumer_options(settings(group_protocol=protocol), client="w1")
    assert (found["enable.auto.commit"], found["enable.auto.offset.store"]) == (False, False)
    assert (found["auto.offset.reset"], found["isolation.level"]) == ("error", "read_committed")
    Consumer(found | {"log_level": 0}).close()


def test_more_options_are_passed_on_and_those_that_we_depend_on_are_not_theirs() -> None:
    given = '{"client.rack": "eu-1a", "fetch.wait.max.ms": 7, "sasl.oauthbearer.client.secret": "canary"}'
    settings = load_settings(KAFKA | {"KAFKA_CLIENT_OPTIONS": given})
    found = consumer_options(settings.kafka, client="w1")
    assert (found["client.rack"], found["fetch.wait.max.ms"], found["enable.auto.commit"]) == ("eu-1a", 7, False)
    assert options(settings.kafka, client="w1")["client.rack"] == "eu-1a"
    assert "canary" not in repr(settings)
    assert "canary" in settings.secrets()
    assert {"group.id", "enable.auto.commit", "auto.offset.reset", "isolation.level"} <= OURS


def test_errors_of_librdkafka_are_given_to_us_and_not_written_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[KafkaError] = []
    settings = load_settings(KAFKA | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}).kafka
    consumer = open_consumer(settings, client="w1", on_error=told.append, on_commit=lambda *_: None)
    eventually(lambda: consumer.poll(0.05) or any(error.code() == KafkaError._TRANSPORT for error in told))
    consumer.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"KAFKA_BOOTSTRAP_SERVERS": "http://a:9092"}, "KAFKA_BOOTSTRAP_SERVERS"),
        ({"OUTBOX_ENTITY_TYPES": "article"}, "OUTBOX_ENTITY_TYPES"),
        ({"OUTBOX_KIND_RATE": '{"article": 5}'}, "OUTBOX_KIND_"),
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "KAFKA_SASL_USERNAME"),
        ({"KAFKA_SASL_PASSWORD": "canary"}, "KAFKA_SASL_PASSWORD"),
        ({"KAFKA_CLIENT_OPTIONS": "canary"}, "KAFKA_CLIENT_OPTIONS"),
        ({"KAFKA_CLIENT_OPTIONS": '{"group.id": "canary"}'}, "KAFKA_CLIENT_OPTIONS"),
        ({"KAFKA_CLIENT_OPTIONS": '{"client.rack": ["canary"]}'}, "KAFKA_CLIENT_OPTIONS"),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_SASL_PASSWORD": "c"},
            "KAFKA_SASL_PASSWORD",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_its_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(KAFKA | given)
    assert any(problem.variable.startswith(named) for problem in refused.value.problems)
    assert "canary" not in str(refused.value)


def test_a_login_over_tls_names_its_files_and_its_password(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    given = settings(
        security_protocol="SASL_SSL",
        sasl_username="projector",
        sasl_password=SecretStr("canary"),
        ca_certs=file,
    )
    found = consumer_options(given, client="w1")
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (found["sasl.username"], found["sasl.password"]) == ("projector", "canary")
    assert found["ssl.ca.location"] == str(file)
    assert "canary" not in repr(given)
