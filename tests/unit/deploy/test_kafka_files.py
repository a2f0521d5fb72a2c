"""The deployment files with Kafka: valid, pinned, and in step with the connector that the program prints."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from outbox.config.load import known_names
from outbox.config.settings import VARIABLES
from outbox.embedded.pins import DEBEZIUM, KAFKA_VERSION
from outbox.kafka.connector import LARGEST_RECORD_BYTES, TOPIC, ConnectorPlan, configuration, properties
from tests.fixtures.deployment import DEPLOY, ROOT, read_all_yaml, read_yaml
from tests.fixtures.kustomize import build, containers, pod_spec

BELOW: Any = read_yaml(ROOT / "docker-compose.infra.yml")["services"]
COMPOSE: Any = read_yaml(ROOT / "docker-compose.kafka.yml")
SERVICES: dict[str, Any] = COMPOSE["services"]
NEW = [name for name in SERVICES if name not in BELOW]
DOCKERFILE = (DEPLOY / "compose" / "connect.Dockerfile").read_text()
KUBERNETES = DEPLOY / "kubernetes"
KAFKA = KUBERNETES / "components" / "kafka"
BUILT = build(KUBERNETES / "overlays" / "kafka")
CONFIG = next(resource["data"] for resource in BUILT if resource["kind"] == "ConfigMap")
UNIT = DEPLOY / "systemd" / "kafka" / "outbox-connect.service"


@pytest.mark.parametrize("name", NEW)
def test_a_service_is_pinned_checked_and_open_on_loopback_only(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", service["image"].partition(":")[2])
    assert "healthcheck" in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for source in (volume.partition(":")[0] for volume in service.get("volumes", [])):
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", ["projector", "console"])
def test_what_reads_from_kafka_sets_names_that_there_are(name: str) -> None:
    given = SERVICES[name]["environment"]
    assert set(given) <= set(known_names())
    assert (given["OUTBOX_SOURCE"], given["KAFKA_TOPIC"]) == ("kafka", TOPIC)
    port = given["KAFKA_BOOTSTRAP_SERVERS"].removeprefix("kafka")
    assert f"CONTAINERS://{port}" in SERVICES["kafka"]["environment"]["KAFKA_LISTENERS"]


def test_producers_write_to_the_log_that_debezium_may_read() -> None:
    assert SERVICES["migrate"]["command"] == ["migrate", "--log"]
    assert "wal_level=logical" in SERVICES["db"]["command"]
    assert set(BELOW["db"]["command"]) <= set(SERVICES["db"]["command"])


def test_the_connectors_file_is_what_the_program_prints() -> None:
    plan = ConnectorPlan("db", 5432, "wordloom_dev", "outbox_connector", "outbox_log", replication=1)
    assert (DEPLOY / "compose" / "outbox-log.properties").read_text() == properties(plan)
    mounted = [volume for volume in SERVICES["connect"]["volumes"] if f":{plan.secrets}:" in volume]
    assert len(mounted) == 1
    assert {f"--topic={TOPIC}", f"--config=max.message.bytes={LARGEST_RECORD_BYTES}"} <= set(
        SERVICES["topic"]["command"]
    )


def test_containers_have_the_versions_that_are_tested() -> None:
    version = KAFKA_VERSION
    assert {SERVICES[name]["image"] for name in ("kafka", "topic")} == {f"apache/kafka:{version}"}
    assert f"ARG KAFKA={version}\n" in DOCKERFILE
    assert "FROM apache/kafka:${KAFKA}\n" in DOCKERFILE
    assert "maven-dependency-plugin:2.10:copy" in DOCKERFILE, "later ones need the archive's parent from the mirror"
    assert f"ARG VERSION={DEBEZIUM.version}\nARG SHA256={DEBEZIUM.artifacts[0].sha256}\n" in DOCKERFILE


# Kubernetes


def test_pods_read_from_kafka_with_a_login_in_files_of_their_secret() -> None:
    assert set(CONFIG) <= set(known_names())
    assert (CONFIG["OUTBOX_SOURCE"], CONFIG["KAFKA_SECURITY_PROTOCOL"]) == ("kafka", "SASL_SSL")
    assert "KAFKA_SASL_PASSWORD" not in CONFIG
    files = {Path(value).name for value in CONFIG.values() if value.startswith("/run/secrets/outbox/")}
    usual = read_all_yaml(KUBERNETES / "secret.example.yaml")
    more = {each["metadata"]["name"]: each["stringData"] for each in read_all_yaml(KAFKA / "secret.example.yaml")}
    for secret, added in more.items():
        [base] = [each["stringData"] for each in usual if each["metadata"]["name"] == secret]
        assert files <= {*base, *added}
    mounted = {v["secret"]["secretName"] for r in BUILT if (s := pod_spec(r)) for v in s["volumes"] if "secret" in v}
    assert mounted == set(more)
    assert all("configMapRef" in str(container["envFrom"]) for r in BUILT for container in containers(r))


def test_the_strimzi_example_is_the_configuration_that_the_program_prints() -> None:
    assert read_yaml(KAFKA / "connector.example.yaml")["apiVersion"] == "kafka.strimzi.io/v1", "v1beta2 was removed"
    spec = read_yaml(KAFKA / "connector.example.yaml")["spec"]
    secrets = spec["config"]["database.password"].split(":")[1]
    plan = ConnectorPlan(
        "postgresql", 5432, "app", "outbox_connector", "outbox_log", secrets=secrets, replication=3, partitions=18
    )
    given = {"connector.class": spec["class"], "tasks.max": str(spec["tasksMax"]), **spec["config"]}
    assert given == configuration(plan)


def test_keda_asks_for_the_group_and_topic_that_the_pods_read_as_a_user_of_its_own() -> None:
    [scaled] = [resource for resource in BUILT if resource["kind"] == "ScaledObject"]
    [trigger] = scaled["spec"]["triggers"]
    asked = trigger["metadata"]
    assert trigger["type"] == "kafka"
    assert asked["bootstrapServers"] == CONFIG["KAFKA_BOOTSTRAP_SERVERS"]
    assert (asked["topic"], asked["consumerGroup"]) == (CONFIG["KAFKA_TOPIC"], CONFIG["KAFKA_GROUP"])
    mechanism = CONFIG.get("KAFKA_SASL_MECHANISM", VARIABLES["KAFKA_SASL_MECHANISM"].default)
    assert asked["sasl"] == {"SCRAM-SHA-512": "scram_sha512"}[mechanism]
    assert (asked["tls"], asked["offsetResetPolicy"]) == ("enable", "earliest")
    [login] = [resource for resource in BUILT if resource["kind"] == "TriggerAuthentication"]
    assert login["metadata"]["name"] == trigger["authenticationRef"]["name"]
    [secret] = read_all_yaml(KUBERNETES / "components" / "kafka-autoscaling" / "secret.example.yaml")
    kubernetes_validate.validate(secret, "1.33", strict=True)
    refs = login["spec"]["secretTargetRef"]
    assert {each["name"] for each in refs} == {secret["metadata"]["name"]}
    assert {each["key"] for each in refs} == set(secret["stringData"])
    others = [each["stringData"]["kafka_password"] for each in read_all_yaml(KAFKA / "secret.example.yaml")]
    assert secret["stringData"]["kafka_password"] not in others


# systemd
