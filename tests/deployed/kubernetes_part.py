"""Owns the parts `kubernetes` and `chart`: a real API server judges the manifests, and a node runs them."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deployed import bad_input, compose, golang, images, kafka_pods, pods
from tests.deployed.cluster import ApiServer, api_server, controlled
from tests.deployed.debian import require_root
from tests.deployed.engine import docker_engine
from tests.deployed.node import exported, node
from tests.deployed.scenario import Figures, Versions
from tests.deployed.shell import DeploymentFailed, run, say
from tests.fixtures.deployment import read_all_yaml
from tests.fixtures.helm import CHART, KUBERNETES, NAMESPACES, VERSION, by_name, expected, rendered
from tests.fixtures.kustomize import build, pod_spec

README = KUBERNETES / "README.md"


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with judging(folder, versions) as server:
        figures["custom_resources"] = definitions(server, folder)
        figures["refuses_what_is_wrong"] = _refuses(server)
        figures["overlays"] = {name: _overlay(server, name) for name in NAMESPACES}
        figures["pods_under_restricted"] = _pods(server)
        figures["secrets"] = _examples(server)
    play_pods(folder, only_standins, figures, versions)


def play_pods(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    """On a node of its own, with new servers, because the overlays above were applied without their Secrets."""
    require_root("a node that runs pods")
    with docker_engine(folder) as engine:
        wanted = (*compose.IMAGES[:1], *pods.IMAGES, kafka_pods.BROKER, kafka_pods.PARENT)
        versions["images"] = images.provide(engine, wanted, only_standins)
        engine.docker("build", "-q", "-t", pods.OURS, ".")
        kafka_pods.build_connect(engine)
        exported(engine, folder, (*pods.IMAGES, pods.OURS, kafka_pods.BROKER, kafka_pods.CONNECT))
    with api_server(folder) as server, controlled(server, folder), node(server, folder) as made:
        versions["containerd"] = made.version
        definitions(server, folder)
        servers = pods.Servers(server, made, server.folder)
        servers.start()
        figures["bad input"] = bad_input.play(servers, server.folder)
        site = pods.play(servers, server.folder, figures)
        kafka_pods.play(site, figures.setdefault("kafka", {}))


def play_chart(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    del only_standins
    helm = shutil.which("helm") or golang.helm(folder)
    versions["helm"] = run(helm, "version", "--short").strip()
    with judging(folder, versions) as server:
        definitions(server, folder)
        figures["resources"] = {name: _chart(server, Path(helm), name) for name in NAMESPACES}


@contextmanager
def judging(folder: Path, versions: Versions) -> Iterator[ApiServer]:
    """An API server with the namespaces of the overlays, in which only restricted pods are taken."""
    with api_server(folder) as server:
        versions |= {"kubernetes": golang.KUBERNETES, "keda": golang.KEDA, "prometheus-operator": golang.OPERATOR}
        for namespace in sorted(set(NAMESPACES.values())):
            server.kubectl("create", "namespace", namespace)
            pods.restrict(server, namespace)
            server.kubectl("-n", namespace, "create", "serviceaccount", "default")  # a controller would
        yield server


def definitions(server: ApiServer, folder: Path) -> int:
    """KEDA's and the Prometheus operator's own."""
    keda = golang.module(folder, "github.com/kedacore/keda/v2", golang.KEDA) / "config" / "crd" / "bases"
    operator = golang.module(folder, "github.com/prometheus-operator/prometheus-operator", golang.OPERATOR)
    for place in (keda, operator / "example" / "prometheus-operator-crd"):
        server.kubectl("apply", "--server-side", "-f", place)
    server.kubectl("wait", "--for=condition=established", "crd", "--all", "--timeout=60s")
    return len(server.kubectl("get", "crd", "-o", "name").split())


def _refuses(server: ApiServer) -> list[str]:
    """That the checks below can fail: a field that there is not, and a pod that is not restricted."""
    deployment = next(each for each in build(KUBERNETES / "overlays" / "dev") if each["kind"] == "Deployment")
    deployment["spec"]["replica"] = 1
    scaled = next(each for each in build(KUBERNETES / "overlays" / "production") if each["kind"] == "ScaledObject")
    scaled["spec"]["maxReplicas"] = 4
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root", "namespace": "outbox"}}
    pod["spec"] = {"containers": [{"name": "c", "image": "c"}]}
    refused = []
    for wrong in (deployment, scaled, pod):
        try:
            server.judge("-f", "-", text=json.dumps(wrong))
        except DeploymentFailed as said:
            refused.append(f"{wrong['kind']}: {str(said).splitlines()[-1][:160]}")
    if len(refused) != 3:
        raise DeploymentFailed(f"the server takes what is wrong: {refused}")
    return refused


def _overlay(server: ApiServer, name: str) -> int:
    """Judged, then really applied; and it is what the tests' own reading of kustomize says."""
    folder = KUBERNETES / "overlays" / name
    printed = [each for each in yaml.safe_load_all(server.kubectl("kustomize", folder)) if each]
    if by_name(printed) != by_name(build(folder)):
        raise DeploymentFailed(f"{folder.name}: kubectl builds something else than tests/fixtures/kustomize.py")
    judged = server.judge("-k", folder)
    server.kubectl("apply", "-k", folder)
    server.kubectl("diff", "-k", folder)
    say(f"   overlay {name}: {len(judged)} resources")
    return len(judged)


def _chart(server: ApiServer, helm: Path, name: str) -> int:
    resources = rendered(helm, name)
    if by_name(resources) != by_name(expected(name)):
        raise DeploymentFailed(f"the chart with values-{name}.yaml is not the overlay")
    run(helm, "lint", CHART, "-f", CHART / f"values-{name}.yaml", "--strict", *VERSION)
    return len(server.judge("-f", "-", text=yaml.safe_dump_all(resources)))


def _pods(server: ApiServer) -> int:
    """Deployments and Jobs are only warned of; pods are refused."""
    count = 0
    for overlay, namespace in NAMESPACES.items():
        for resource in expected(overlay):
            if spec := pod_spec(resource):
                metadata = {"name": f"{overlay}-{resource['metadata']['name']}", "namespace": namespace}
                pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                server.judge("-f", "-", text=json.dumps(pod))
                count += 1
    return count


def _examples(server: ApiServer) -> int:
    examples = [*KUBERNETES.glob("secret.example.yaml"), *KUBERNETES.glob("components/*/secret.example.yaml")]
    for path in examples:
        server.judge("-n", "outbox", "-f", path)
    return sum(len(read_all_yaml(path)) for path in examples)
