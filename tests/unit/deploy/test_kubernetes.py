"""The manifests: valid against Kubernetes' own schemas, restricted, and in step with the settings."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from outbox.config.load import known_names
from tests.fixtures.deployment import DEPLOY, read_all_yaml, shutdown_grace_seconds
from tests.fixtures.kustomize import Resource, build, containers, pod_spec

KUBERNETES = DEPLOY / "kubernetes"
FOLDERS = ["base", "migrate", "overlays/dev", "overlays/production"]
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
VERSIONS = ["1.30", "1.33"]
SECRETS = read_all_yaml(KUBERNETES / "secret.example.yaml")
PAGE = (KUBERNETES / "README.md").read_text()
BLOCK = PAGE.partition("```sh kubectl\n")[2].partition("```")[0]
SECRET_KEYS = {key for secret in SECRETS for key in secret["stringData"]}
BUILT = [(folder, resource) for folder in FOLDERS for resource in build(KUBERNETES / folder)]
KAFKA = [("overlays/kafka", resource) for resource in build(KUBERNETES / "overlays" / "kafka")]
PODS = [(folder, resource) for folder, resource in BUILT if pod_spec(resource)]


def named(value: Any) -> str:
    return value if isinstance(value, str) else f"{value['kind']}-{value['metadata']['name']}"


def of(folder: str, kind: str, name: str = "") -> Resource:
    found = [r for f, r in BUILT if f == folder and r["kind"] == kind and name in ("", r["metadata"]["name"])]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("folder", "resource"), [*BUILT, *KAFKA], ids=named)
def test_every_resource_is_valid(folder: str, resource: Resource, version: str) -> None:
    if resource["kind"] in CUSTOM:
        assert resource["apiVersion"].partition("/")[0] in {"monitoring.coreos.com", "keda.sh"}
    else:
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_secret_examples_are_valid_and_in_no_kustomization() -> None:
    for secret in SECRETS:
        kubernetes_validate.validate(secret, VERSIONS[-1], strict=True)
    assert not [resource for _, resource in BUILT if resource["kind"] == "Secret"]


def test_no_address_ends_with_a_newline_and_the_page_says_how_to_write_one_without() -> None:
    """Ours is ignored; KEDA takes it for a part of the address."""
    addresses = [secret["stringData"]["database_url"] for secret in SECRETS]
    assert addresses == [address.strip() for address in addresses]
    assert "`printf %s ... > migrate/database_url`" in PAGE


@pytest.mark.parametrize(("folder", "resource"), PODS, ids=named)
def test_every_pod_meets_the_restricted_standard(folder: str, resource: Resource) -> None:
    spec = pod_spec(resource)
    assert spec is not None
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} <= {"secret", "emptyDir"}
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(resource):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in own
        assert "hostPort" not in str(container.get("ports", []))


@pytest.mark.parametrize(("folder", "resource"), [p for p in PODS if p[1]["kind"] == "Deployment"], ids=named)
def test_pods_get_the_grace_and_ten_seconds_more(folder: str, resource: Resource) -> None:
    grace = int(of(folder, "ConfigMap")["data"]["OUTBOX_SHUTDOWN_GRACE_SECONDS"])
    spec = pod_spec(resource)
    assert spec is not None
    assert grace == shutdown_grace_seconds()
    assert spec["terminationGracePeriodSeconds"] == grace + 10


@pytest.mark.parametrize(("folder", "resource"), PODS, ids=named)
def test_containers_set_only_names_that_there_are_and_no_secret(folder: str, resource: Resource) -> None:
    for container in containers(resource):
        given = {variable["name"]: variable for variable in container.get("env", [])}
        shared = of(folder, "ConfigMap")["data"] if "envFrom" in container else {}
        assert {*given, *shared} <= set(known_names())
        files = [v["value"] for name, v in given.items() if name.endswith("_FILE")] + [
            path for name, path in shared.items() if name.endswith("_FILE") or name == "ELASTIC_CA_CERTS"
        ]
        assert files
        assert {Path(path).name for path in files} <= SECRET_KEYS
        assert {str(Path(path).parent) for path in files} == {"/run/secrets/outbox"}
        assert not {"DATABASE_URL", "ELASTIC_API_KEY", "ELASTIC_PASSWORD"} & {*given, *shared}


@pytest.mark.parametrize("folder", FOLDERS[2:])
def test_projectors_are_scraped_from_outside_and_pause_in_an_outage(folder: str) -> None:
    [container] = containers(of(folder, "Deployment", "outbox-projector"))
    given = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert given["OUTBOX_METRICS_HOST"] == "0.0.0.0"
    assert of(folder, "ConfigMap")["data"]["OUTBOX_OUTAGE_POLICY"] == "pause"
    lines = (KUBERNETES / "base" / "configmap.yaml").read_text().splitlines()
    assert lines[lines.index("  OUTBOX_OUTAGE_POLICY: pause") - 1].strip().startswith("#")
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_autoscaling_owns_the_replicas_and_keeps_one() -> None:
    deployment = of("overlays/production", "Deployment", "outbox-projector")
    scaled = of("overlays/production", "ScaledObject")["spec"]
    assert "replicas" not in deployment["spec"]
    assert scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (scaled["minReplicaCount"], scaled["triggers"][0]["type"]) == (1, "postgresql")
    reference = scaled["triggers"][0]["authenticationRef"]["name"]
    secret = of("overlays/production", "TriggerAuthentication", reference)["spec"]["secretTargetRef"][0]
    assert (secret["name"], secret["key"]) == ("outbox-scaler", "database_url")
