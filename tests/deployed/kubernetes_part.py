"""Owns the parts `kubernetes` and `chart`: a real API server judges the manifests. It has no node: no pod runs."""

import json
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from outbox.embedded.process import free_port
from tests.deployed import golang
from tests.deployed.debian import fetch_programs
from tests.deployed.scenario import Figures, Versions
from tests.deployed.shell import DeploymentFailed, MissingSoftware, await_until, run, say
from tests.fixtures.deployment import read_all_yaml
from tests.fixtures.helm import CHART, KUBERNETES, NAMESPACES, by_name, expected, rendered
from tests.fixtures.kustomize import build, pod_spec

RESTRICTED = ("enforce", "warn", "audit")
README = KUBERNETES / "README.md"


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    del only_standins  # it needs no image
    with judging(folder, versions) as server:
        figures["custom_resources"] = _definitions(server, folder)
        figures["refuses_what_is_wrong"] = _refuses(server)
        figures["overlays"] = {name: _overlay(server, name) for name in NAMESPACES}
        figures["pods_under_restricted"] = _pods(server)
        figures["secrets"] = _examples(server)


def play_chart(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    del only_standins
    helm = shutil.which("helm") or golang.helm(folder)
    versions["helm"] = run(helm, "version", "--short").strip()
    with judging(folder, versions) as server:
        _definitions(server, folder)
        figures["resources"] = {name: _chart(server, Path(helm), name) for name in NAMESPACES}


@contextmanager
def judging(folder: Path, versions: Versions) -> Iterator["ApiServer"]:
    """An API server with the namespaces of the overlays, in which only restricted pods are taken."""
    if not shutil.which("kubectl"):
        raise MissingSoftware("kubectl: tried the PATH")
    programs = golang.kubernetes(folder, "kube-apiserver")
    etcd = shutil.which("etcd") or fetch_programs(folder, ("etcd-server",)) / "usr" / "bin" / "etcd"
    with cluster(folder / "cluster", Path(etcd), programs) as server:
        versions |= {"kubernetes": golang.KUBERNETES, "keda": golang.KEDA, "prometheus-operator": golang.OPERATOR}
        for namespace in sorted(set(NAMESPACES.values())):
            server.kubectl("create", "namespace", namespace)
            labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in RESTRICTED]
            server.kubectl("label", "namespace", namespace, *labels)
            server.kubectl("-n", namespace, "create", "serviceaccount", "default")  # a controller would
        yield server


class ApiServer:
    """An API server on loopback, and kubectl as its administrator."""

    def __init__(self, config: Path) -> None:
        self.config = config

    def kubectl(self, *words: str | Path, text: str | None = None, check: bool = True) -> str:
        return run("kubectl", "--kubeconfig", self.config, *words, text=text, check=check, limit=120)

    def judge(self, *words: str | Path, text: str | None = None) -> list[str]:
        """What the server says of resources that it would take; a warning, as of pod security, is a failure."""
        told = self.kubectl("apply", "--dry-run=server", "--validate=strict", *words, text=text)
        if "Warning" in told:
            raise DeploymentFailed(told)
        return told.splitlines()


@contextmanager
def cluster(folder: Path, etcd: Path, programs: Path) -> Iterator[ApiServer]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run("openssl", "genrsa", "-out", folder / "sa.key", "2048")
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n')
    (folder / "tokens.csv").chmod(0o600)
    store, peer, port = (free_port() for _ in range(3))
    with ExitStack() as stack:
        client = f"http://127.0.0.1:{store}"
        stack.enter_context(_running(folder, etcd, *_etcd_options(folder, client, f"http://127.0.0.1:{peer}")))
        stack.enter_context(_running(folder, programs / "kube-apiserver", *_server_options(folder, client, port)))
        server = ApiServer(_kubeconfig(folder, port, token))
        await_until(lambda: server.kubectl("get", "--raw", "/readyz"), "the API server is ready", 300)
        yield server


def _etcd_options(folder: Path, client: str, peer: str) -> list[str]:
    options = [f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    options += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    return [*options, f"--initial-cluster=default={peer}", "--unsafe-no-fsync"]


def _server_options(folder: Path, client: str, port: int) -> list[str]:
    key = folder / "sa.key"
    return [
        f"--etcd-servers={client}",
        f"--cert-dir={folder / 'certs'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--anonymous-auth=false",
        "--endpoint-reconciler-type=none",  # it serves nobody but us
    ]


@contextmanager
def _running(folder: Path, program: Path, *options: str) -> Iterator[None]:
    with (folder / f"{program.name}.log").open("w") as log:
        started = subprocess.Popen([program, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        yield
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()


def _kubeconfig(folder: Path, port: int, token: str) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}  # made at its start
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(made))
    path.chmod(0o600)
    return path


def _definitions(server: ApiServer, folder: Path) -> int:
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
    run(helm, "lint", CHART, "-f", CHART / f"values-{name}.yaml", "--strict")
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
