"""A real broker that asks for TLS and a login: what is wrong is said by its name."""

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from outbox.config import KafkaSettings
from outbox.embedded import EmbeddedKafka
from outbox.embedded.process import free_port
from outbox.errors import StreamDown
from outbox.facts import StreamFault
from outbox.kafka.findings import StreamExam
from outbox.kafka.group_progress import ANSWER_SECONDS, KafkaOffsets
from outbox.ports import Level
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.processes import ROOT
from tests.fixtures.secured import Authority
from tests.fixtures.servers import KAFKA_SETTINGS
from tests.fixtures.sinks import MemorySink
from tests.fixtures.streaming import an_event_record, joined
from tests.fixtures.waiting import eventually
from tests.unit.kafka.test_events import MemoryRecords

pytestmark = pytest.mark.release(
    "a secured broker takes forty seconds; what the client is told is in tests/unit/kafka/test_connection.py"
)
USER, PASSWORD = "projector", "canary-of-kafka"
OTHERS = ("console", "doctor")
LITERAL = ResourcePatternType.LITERAL
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
            "sasl_mechanism": "PLAIN",
            "sasl_username": USER,
            "sasl_password": SecretStr(PASSWORD),
            "ca_certs": self.ca_certs,
            **more,
        }
        return KafkaSettings(**given)


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Secured]:
    """Beside the usual listener one with TLS and a login."""
    plain, secure, controller = free_port(), free_port(), free_port()
    files = authority.issue("kafka", "IP:127.0.0.1")
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (USER, *OTHERS))
    login = f'username="{USER}" password="{PASSWORD}" {users}'
    open_listener, closed = f"PLAINTEXT://127.0.0.1:{plain}", f"SECURE://127.0.0.1:{secure}"
    settings = {
        **KAFKA_SETTINGS,
        "listeners": f"{open_listener},{closed},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{open_listener},{closed}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # who comes without a login: the broker itself, and the desk of the test
        "allow.everyone.if.no.acl.found": "true",  # a topic or group with rights of its own has no others
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {login};",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.key": one_line(files.key),
        "listener.name.secure.ssl.keystore.certificate.chain": one_line(files.certificate),
    }
    with ExitStack() as undo:
        voters = {1: controller}
        broker = undo.enter_context(EmbeddedKafka.temporary(port=plain, voters=voters, settings=settings))
        yield Secured(KafkaDesk(broker.url), f"127.0.0.1:{secure}", authority.certificate)


def one_line(file: Path) -> str:
    """For a properties file: a blank at the end of a line stands for its newline in PEM."""
    return " ".join(file.read_text().splitlines())


@pytest.fixture
def topic(secured: Secured) -> Iterator[str]:
    name = secured.desk.create_topic(f"test-{uuid.uuid4().hex[:12]}", PARTITIONS)
    yield name
    secured.desk.delete_topic(name)


def rights_of_the_page() -> list[tuple[str, str, str]]:
    """Who, resource and operation, from the table of docs/kafka.md."""
    (text,) = re.findall(
        r"^## Rights in Kafka$(.*?)^## ", (ROOT / "docs/kafka.md").read_text(), re.DOTALL | re.MULTILINE
    )
    rows = re.findall(r"^\| (\w+) \| (\w+) \| ([\w, ]+) \|$", text, re.MULTILINE)
    return [(who, kind, each) for who, kind, named in rows if who != "who" for each in named.split(", ")]


class Rights:
    """What each user may do with one topic and group; the rest of the brokers stays as it is."""

    def __init__(self, secured: Secured, settings: KafkaSettings) -> None:
        self._admin = secured.desk.admin
        self._names = {"topic": settings.topic, "group": settings.group, "cluster": "kafka-cluster"}
        self.granted = rights_of_the_page()
        for kind in self._names:  # from now on nobody has a right that is not given
            self._create(self._acl("nobody", kind, "Alter"))
        for right in self.granted:
            self._create(self._acl(*right))

    def take(self, right: tuple[str, str, str]) -> None:
        for answer in self._admin.delete_acls([self._filter(*right)]).values():
            assert len(answer.result(30)) == 1

    def give(self, right: tuple[str, str, str]) -> None:
        self._create(self._acl(*right))

    def clear(self) -> None:
        for right in [*self.granted, *(("nobody", kind, "Alter") for kind in self._names)]:
            for answer in self._admin.delete_acls([self._filter(*right)]).values():
                answer.result(30)

    def _create(self, acl: AclBinding) -> None:
        for answer in self._admin.create_acls([acl]).values():
            answer.result(30)

    def _acl(self, who: str, kind: str, operation: str) -> AclBinding:
        user, allowed = f"User:{who}", AclPermissionType.ALLOW
        return AclBinding(kind_of(kind), self._names[kind], LITERAL, user, "*", operation_of(operation), allowed)

    def _filter(self, who: str, kind: str, operation: str) -> AclBindingFilter:
        user, allowed = f"User:{who}", AclPermissionType.ALLOW
        return AclBindingFilter(kind_of(kind), self._names[kind], LITERAL, user, "*", operation_of(operation), allowed)


def operation_of(name: str) -> AclOperation:
    return AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()]


def kind_of(name: str) -> ResourceType:
    return ResourceType.BROKER if name == "cluster" else ResourceType[name.upper()]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_the_rights_of_the_page_are_enough_and_each_is_needed(secured: Secured, topic: str, protocol: str) -> None:
    """The projector reads and commits, the console shows, doctor checks all; a right that is taken away is named."""
    secured.desk.produce(topic, [an_event_record(str(n), n) for n in range(1, 21)])
    settings = secured.settings(topic, group_protocol=protocol)
    as_user = {name: settings.model_copy(update={"sasl_username": name}) for name in (USER, *OTHERS)}
    rights = Rights(secured, settings)
    try:
        with joined(settings, MemoryRecords(), MemorySink()) as member:
            ends = {number: end for number, end in secured.desk.ends(topic).items() if end}
            member.run_until(committed=ends, desk=secured.desk, group=settings.group, topic=topic)
            assert member.of(StreamFault) == []
            assert sum(each.lag for each in KafkaOffsets(as_user["console"]).read()) == 0
            assert not said_by_doctor(as_user["doctor"])
        if protocol == "consumer":
            for right in rights.granted:
                rights.take(right)
                assert said_without(right[0], as_user), right
                rights.give(right)
            assert not said_by_doctor(as_user["doctor"])
    finally:
        rights.clear()


def said_without(who: str, as_user: dict[str, KafkaSettings]) -> str:
    """What that user is refused, with the right that it lacks."""
    if who == "doctor":
        return " ".join(said_by_doctor(as_user[who]))
    if who == "console":
        try:
            offsets = KafkaOffsets(as_user[who])
            offsets.ages(offsets.read())
        except StreamDown as error:
            return str(error)
        return ""
    with joined(as_user[who], MemoryRecords(), MemorySink()) as member:
        eventually(lambda: any("grant this user" in fact.error for fact in member.of(StreamFault)), what="its words")
    return "refused"


def said_by_doctor(settings: KafkaSettings) -> list[str]:
    found = StreamExam(KafkaOffsets(settings), set, lambda: 100).examine()
    return [each.detail for each in found if "grant this user" in each.detail]


def wrong(secured: Secured, authority: Authority, tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {
        "KAFKA_SASL_PASSWORD": {"sasl_password": SecretStr(f"{PASSWORD}-of-yesterday")},
        "KAFKA_SASL_USERNAME": {"sasl_username": "somebody"},
        "KAFKA_CA_CERTS": {"ca_certs": Authority.made(tmp_path / "other", "another authority").certificate},
    }


@pytest.mark.parametrize("named", ["KAFKA_SASL_PASSWORD", "KAFKA_SASL_USERNAME", "KAFKA_CA_CERTS"])
def test_what_is_wrong_is_named_by_the_worker_and_by_doctor_without_a_secret(
    secured: Secured, topic: str, authority: Authority, tmp_path: Path, named: str
) -> None:
    settings = secured.settings(topic, **wrong(secured, authority, tmp_path)[named])
    with joined(settings, MemoryRecords(), MemorySink()) as member:
        eventually(lambda: any(named in fact.error for fact in member.of(StreamFault)), what="its own words")
        said = " ".join(fact.error for fact in member.of(StreamFault))
    began = time.monotonic()
    (finding,) = StreamExam(KafkaOffsets(settings), set, lambda: 0).examine()
    assert finding.level is Level.BAD
    assert named in finding.detail
    assert PASSWORD not in said + finding.detail + finding.remedy
    assert time.monotonic() - began < ANSWER_SECONDS  # it does not wait for a broker that has answered
