"""Owns overlays/kafka as pods: a broker with TLS and logins, Connect, and the projectors that read from it."""

import json
import secrets
import time

import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from outbox.kafka.connector import TOPIC
from tests.deployed import scenario
from tests.deployed.engine import Engine
from tests.deployed.pods import DATABASE, NAMESPACE, SERVERS, Production, Servers, as_pod, probe
from tests.deployed.scenario import Figures
from tests.deployed.shell import ROOT, DeploymentFailed, await_until, say
from tests.fixtures.helm import KUBERNETES
from tests.fixtures.kustomize import Resource

BROKER, PARENT = "apache/kafka:4.1.0", "maven:3.9-eclipse-temurin-17"
CONNECT = "outbox-connect:4.1.0"
COMPOSE = ROOT / "deploy" / "compose"
BOOTSTRAP = "kafka-kafka-bootstrap"  # the address in components/kafka
GROUP = "outbox-projector"
PARTS = ("projector", "console")  # each with a user and a Secret of its own
PARTITIONS = 18
LARGEST_RECORD = 34_603_008
REQUEST_SECONDS = 60
STEPS = ("a thousand changes", "roll under load", "kill -9 under load", "stop with a backlog", "nothing lost")


def build_connect(engine: Engine) -> None:
    engine.docker("build", "-q", "-t", CONNECT, "-f", COMPOSE / "connect.Dockerfile", COMPOSE, limit=1800)


def play(site: Production, figures: Figures) -> None:
    """By the README, from the production overlay, whose projectors read from the table."""
    before = _in_table(site)
    passwords = {part: secrets.token_hex(8) for part in PARTS}
    admin = _broker(site.servers, passwords)
    site.job("log", ["migrate", "--log"])
    scenario.execute(site, (COMPOSE / "connector-login.sql").read_text())
    _connect(site.servers)
    for part, password in passwords.items():
        _add_secrets(site, part, password)
    site.api.kubectl("apply", "-k", KUBERNETES / "overlays" / "kafka")
    began = time.monotonic()
    site.start()
    site.kubectl("rollout", "status", "deployment/outbox-console", "--timeout=300s", limit=320)
    figures["ready_seconds"] = round(time.monotonic() - began, 1)
    # Fewer documents than one page of a search has; and deletes by the thousand.
    [figures["deletes"]] = scenario.execute(site, "delete from notes")
    scenario.play(site, figures, only=STEPS)
    figures["records"] = _committed(admin)
    figures["rows in the table"] = _in_table(site) - before
    say(f"   overlay kafka: {figures}")
    if figures["records"] < figures["deletes"] + figures["a thousand changes"]["changes"]:
        raise DeploymentFailed(f"events went past Kafka: {figures}")


def _broker(servers: Servers, passwords: dict[str, str]) -> AdminClient:
    """One that is its own controller: without a login for Connect and for us, with TLS and SCRAM for projectors."""
    files = servers.authority.issue("kafka", f"DNS:{BOOTSTRAP}")
    _secret(servers, "kafka", {"kafka.pem": files.key.read_text() + files.certificate.read_text()})
    env = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "PODS://:9092,LOGIN://:9093,CONTROLLER://localhost:9094",
        "KAFKA_ADVERTISED_LISTENERS": f"PODS://$(POD_IP):9092,LOGIN://{BOOTSTRAP}:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PODS:PLAINTEXT,LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PODS",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
        "KAFKA_LISTENER_NAME_LOGIN_SCRAM___SHA___512_SASL_JAAS_CONFIG": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "KAFKA_SSL_KEYSTORE_TYPE": "PEM",
        "KAFKA_SSL_KEYSTORE_LOCATION": "/etc/kafka/tls/kafka.pem",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
        "KAFKA_HEAP_OPTS": "-Xmx400m",
    }
    container = {
        "name": "kafka",
        "image": BROKER,
        "resources": {"requests": {"cpu": "200m"}},
        "readinessProbe": probe(["bash", "-c", "exec 3<>/dev/tcp/localhost/9093"]),
    }
    tls = {"secret": {"secretName": "kafka", "defaultMode": 0o440}}
    pod = as_pod(container, 1000, env, {"/etc/kafka/tls": tls, "/var/lib/kafka/data": {"emptyDir": {}}})
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    pod["spec"]["containers"][0]["env"].insert(0, address)  # before what is made of it
    _started(servers, pod)
    for name in (f"kafka.{SERVERS}", f"{BOOTSTRAP}.{NAMESPACE}"):
        servers.node.names.give(name, servers.address("kafka"))
    admin = AdminClient({"bootstrap.servers": f"{servers.address('kafka')}:9092"})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"max.message.bytes": str(LARGEST_RECORD)})
    admin.create_topics([topic])[TOPIC].result(REQUEST_SECONDS)
    way = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(f"outbox-{part}", way, word.encode()) for part, word in passwords.items()
    ]
    for done in admin.alter_user_scram_credentials(users).values():
        done.result(REQUEST_SECONDS)
    return admin


def _connect(servers: Servers) -> None:
    """The worker and the connector of the compose files."""
    names = ("worker.properties", "users.properties", "login.conf")
    files = {name: (COMPOSE / f"connect-{name}").read_text() for name in names}
    connector = (COMPOSE / "outbox-log.properties").read_text()
    files["outbox-log.properties"] = connector.replace("dbname=wordloom_dev", f"dbname={DATABASE}")
    _secret(servers, "connect", files)
    _secret(servers, "connector", {"connector.properties": (COMPOSE / "connector.properties").read_text()})
    servers.node.names.give(f"db.{SERVERS}", servers.address("postgresql"))
    login = "$(sed s/=/:/ /etc/connect/users.properties)"
    asked = f'wget -q --spider "http://{login}@127.0.0.1:8083/connectors/outbox-log/status"'
    container = {
        "name": "connect",
        "image": CONNECT,
        "resources": {"requests": {"cpu": "100m"}},
        "readinessProbe": probe(["sh", "-c", asked]),
    }
    env = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/connect/login.conf"}
    mounts = {
        "/etc/connect": {"secret": {"secretName": "connect", "defaultMode": 0o440}},
        "/etc/outbox": {"secret": {"secretName": "connector", "defaultMode": 0o440}},
        "/var/lib/connect": {"emptyDir": {}},
    }
    _started(servers, as_pod(container, 1000, env, mounts))


def _secret(servers: Servers, name: str, data: dict[str, str]) -> None:
    servers.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})


def _started(servers: Servers, pod: Resource) -> None:
    servers.apply(pod)
    name = pod["metadata"]["name"]
    ready = ("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=240s")
    servers.api.kubectl("-n", SERVERS, *ready, limit=260)


def _add_secrets(site: Production, part: str, password: str) -> None:
    """To those that the production overlay's pods have."""
    secret = json.loads(site.kubectl("get", "secret", f"outbox-{part}", "-o", "json"))
    secret["stringData"] = {"kafka_password": password, "kafka_ca.pem": site.servers.certificate.read_text()}
    site.kubectl("replace", "-f", "-", text=json.dumps(secret))


def _committed(admin: AdminClient) -> int:
    """Records of the topic, over all partitions, that the group has done."""
    total = 0

    def counted() -> bool:
        nonlocal total
        [told] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
        total = sum(max(0, place.offset) for place in told.result(REQUEST_SECONDS).topic_partitions)
        return total > 0

    await_until(counted, "offsets of the group", REQUEST_SECONDS)
    return total


def _in_table(site: Production) -> int:
    with psycopg.connect(site.database_url) as connection:
        row = connection.execute("select count(*) from search_outbox_events").fetchone()
    assert row is not None
    return int(row[0])
