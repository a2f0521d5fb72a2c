"""Owns a Kubernetes control plane on loopback: etcd, API server and, with a node, what schedules and controls."""

import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from outbox.embedded.process import free_port
from tests.deployed import golang
from tests.deployed.debian import fetch_programs
from tests.deployed.shell import DeploymentFailed, MissingSoftware, await_until, run

NODE = "node1"
# By the name of the kubeconfig: the user, and its groups.
USERS = {
    "admin": ("admin", "system:masters"),
    "controller": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server on loopback, and kubectl as its administrator."""

    folder: Path

    def config(self, user: str = "admin") -> Path:
        return self.folder / f"{user}.conf"

    def kubectl(self, *words: str | Path, text: str | None = None, check: bool = True, limit: float = 120) -> str:
        return run("kubectl", "--kubeconfig", self.config(), *words, text=text, check=check, limit=limit)

    def judge(self, *words: str | Path, text: str | None = None) -> list[str]:
        """What the server says of resources that it would take; a warning, as of pod security, is a failure."""
        told = self.kubectl("apply", "--dry-run=server", "--validate=strict", *words, text=text)
        if "Warning" in told:
            raise DeploymentFailed(told)
        return told.splitlines()


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """On loopback, with the tokens of `USERS` and a kubeconfig for each."""
    if not shutil.which("kubectl"):
        raise MissingSoftware("kubectl: tried the PATH")
    programs = golang.kubernetes(folder, "kube-apiserver")
    etcd = shutil.which("etcd") or fetch_programs(folder, ("etcd-server",)) / "usr" / "bin" / "etcd"
    place = folder / "cluster"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    run("openssl", "genrsa", "-out", place / "sa.key", "2048")
    tokens = {user: secrets.token_hex(16) for user in USERS}
    _write(
        place / "tokens.csv",
        "".join(f'{tokens[user]},{name},{user},"{group}"\n' for user, (name, group) in USERS.items()),
    )
    store, peer, port = (free_port() for _ in range(3))
    for user, token in tokens.items():
        _write(place / f"{user}.conf", _kubeconfig(port, token))
    with ExitStack() as stack:
        client = f"http://127.0.0.1:{store}"
        stack.enter_context(running(place, etcd, *_etcd_options(place, client, f"http://127.0.0.1:{peer}")))
        stack.enter_context(running(place, programs / "kube-apiserver", *_server_options(place, client, port)))
        server = ApiServer(place)
        await_until(lambda: server.kubectl("get", "--raw", "/readyz"), "the API server is ready", 300)
        yield server


@contextmanager
def controlled(server: ApiServer, folder: Path) -> Iterator[None]:
    """The scheduler and the controllers."""
    programs = golang.kubernetes(folder, "kube-controller-manager", "kube-scheduler")
    common = ["--leader-elect=false", "--bind-address=127.0.0.1"]
    place = server.folder
    controllers = [
        f"--kubeconfig={server.config('controller')}",
        f"--service-account-private-key-file={place / 'sa.key'}",
    ]
    controllers += [f"--root-ca-file={place / 'certs' / 'apiserver.crt'}", "--use-service-account-credentials=true"]
    controllers += ["--controllers=*,-nodeipam,-cloud-node-lifecycle", f"--secure-port={free_port()}", *common]
    scheduler = [f"--kubeconfig={server.config('scheduler')}", f"--secure-port={free_port()}", *common]
    with (
        running(place, programs / "kube-controller-manager", *controllers),
        running(place, programs / "kube-scheduler", *scheduler),
    ):
        yield


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
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=none",  # it serves nobody but us
    ]


@contextmanager
def running(folder: Path, program: str | Path, *options: str, path: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`path` is the PATH of a program that starts others."""
    env = {"PATH": path, "HOME": str(folder)} if path else None
    with (folder / f"{Path(program).name}.log").open("w") as log:
        started = subprocess.Popen(
            [program, *options],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=env,
            start_new_session=True,  # Ctrl-C stops what runs on it first
        )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(10)


def _kubeconfig(port: int, token: str) -> str:
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}  # made at its start
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return yaml.safe_dump(made)


def _write(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
