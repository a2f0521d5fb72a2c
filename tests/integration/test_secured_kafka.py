"""A real broker that asks for TLS and a login: what is wrong is said by its name."""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from outbox.config import KafkaSettings
from outbox.embedded import EmbeddedKafka
from outbox.embedded.process import free_port
from outbox.facts import StreamFault
from outbox.ops.doctor.stream import StreamExam
from outbox.ports import Level
from outbox.stream.offsets import ANSWER_SECONDS, KafkaOffsets
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.secured import Authority
from tests.fixtures.servers import KAFKA_SETTINGS
from tests.fixtures.sinks import MemorySink
from tests.fixtures.streaming import an_event_record, joined
from tests.fixtures.waiting import eventually
from tests.unit.stream.test_events import MemoryRecords

USER, PASSWORD = "projector", "canary-of-kafka"
MODULES = "org.apache.kafka.common.security"
PARTITIONS = 2


@dataclass(frozen=True)
class Secured:
    desk: KafkaDesk  # through a listener without security, for what a test does itself
    url: str
    ca_certs: Path

    def settings(self, topic: str, **more: Any) -> KafkaSettings:
        given = {
            "bootstrap_servers": self.url,
            "topic": topic,
            "group": f"group-{uuid.uuid4().hex[:12]}",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": USER,
            "sasl_password": SecretStr(PASSWORD),
            "ca_certs": self.ca_certs,
            **more,
        }
        return KafkaSettings(**given)


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Secured]:
    """Beside the usual listener one with TLS, and users of both mechanisms."""
    plain, secure, controller = free_port(), free_port(), free_port()
    files = authority.issue("kafka", "IP:127.0.0.1")
    login = f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}"'
    open_listener, closed = f"PLAINTEXT://127.0.0.1:{plain}", f"SECURE://127.0.0.1:{secure}"
    settings = {
        **KAFKA_SETTINGS,
        "listeners": f"{open_listener},{closed},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{open_listener},{closed}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.secure.oauthbearer.sasl.jaas.config": (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}";'
        ),
        "listener.name.secure.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {login};",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.key": one_line(files.key),
        "listener.name.secure.ssl.keystore.certificate.chain": one_line(files.certificate),
    }
    with ExitStack() as undo:
        voters = {1: controller}
        broker = undo.enter_context(EmbeddedKafka.temporary(port=plain, voters=voters, settings=settings))
        add_user(broker)
        yield Secured(KafkaDesk(broker.url), f"127.0.0.1:{secure}", authority.certificate)


def one_line(file: Path) -> str:
    """For a properties file: a blank at the end of a line stands for its newline in PEM."""
    return " ".join(file.read_text().splitlines())


def add_user(broker: EmbeddedKafka) -> None:
    """By Kafka's own program: the embedded broker knows no users."""
    change = f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"
    user = (f"--bootstrap-server={broker.url}", "--entity-type=users", f"--entity-name={USER}")
    broker._run_tool("kafka.admin.ConfigCommand", *user, "--alter", f"--add-config={change}")


@pytest.fixture
def topic(secured: Secured) -> Iterator[str]:
    name = secured.desk.create_topic(f"test-{uuid.uuid4().hex[:12]}", PARTITIONS)
    yield name
    secured.desk.delete_topic(name)


# A token that nobody signs, which a broker takes unless it is configured to check one; and where the client stands.
BY_TOKEN = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_username": None,
    "sasl_password": None,
    "client_options": SecretStr(
        f'{{"enable.sasl.oauthbearer.unsecure.jwt": true, "sasl.oauthbearer.config": "principal={USER}",'
        ' "client.rack": "eu-1a"}'
    ),
}


@pytest.mark.release(
    "a secured broker takes forty seconds; what the client is told is in tests/unit/stream/test_connection.py"
)
@pytest.mark.parametrize("login", [{"sasl_mechanism": "SCRAM-SHA-512"}, {"sasl_mechanism": "PLAIN"}, BY_TOKEN])
def test_records_are_read_and_committed_over_tls_with_a_login(
    secured: Secured, topic: str, login: dict[str, Any]
) -> None:
    secured.desk.produce(topic, [an_event_record(str(n), n) for n in range(1, 21)])
    settings, sink = secured.settings(topic, **login), MemorySink()
    with joined(settings, MemoryRecords(), sink) as member:
        ends = {number: end for number, end in secured.desk.ends(topic).items() if end}
        member.run_until(committed=ends, desk=secured.desk, group=settings.group, topic=topic)
        assert member.of(StreamFault) == []
    assert len(sink.documents) == 20
    assert sum(each.lag for each in KafkaOffsets(settings).read()) == 0


def wrong(secured: Secured, authority: Authority, tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {
        "KAFKA_SASL_PASSWORD": {"sasl_password": SecretStr(f"{PASSWORD}-of-yesterday")},
        "KAFKA_SASL_USERNAME": {"sasl_username": "somebody"},
        "KAFKA_CA_CERTS": {"ca_certs": Authority.made(tmp_path / "other", "another authority").certificate},
    }


@pytest.mark.release(
    "a secured broker takes forty seconds; what the client is told is in tests/unit/stream/test_connection.py"
)
@pytest.mark.parametrize("named", ["KAFKA_SASL_PASSWORD", "KAFKA_SASL_USERNAME", "KAFKA_CA_CERTS"])
def test_what_is_wrong_is_named_by_the_worker_and_by_doctor_without_a_secret(
    secured: Secured, topic: str, authority: Authority, tmp_path: Path, named: str
) -> None:
    settings = secured.settings(topic, **wrong(secured, authority, tmp_path)[named])
    with joined(settings, MemoryRecords(), MemorySink()) as member:
        eventually(lambda: any(named in fact.error for fact in member.of(StreamFault)), what="its own words")
        said = " ".join(fact.error for fact in member.of(StreamFault))
    began = time.monotonic()
    (finding,) = StreamExam(KafkaOffsets(settings), 1, set, lambda: 0).examine()
    assert finding.level is Level.BAD
    assert named in finding.detail
    assert PASSWORD not in said + finding.detail + finding.remedy
    assert time.monotonic() - began < ANSWER_SECONDS  # it does not wait for a broker that has answered
