"""Owns the shipped overlays as pods on a node, with their servers as more pods, by the commands of the README."""

import base64
import hashlib
import json
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Any

import psycopg
from elasticsearch import Elasticsearch

from labs.client import connect
from outbox import __version__
from tests.deployed import scenario
from tests.deployed.cluster import NODE, ApiServer
from tests.deployed.node import PODS, PodNode
from tests.deployed.scenario import Figures
from tests.deployed.shell import ROOT, DeploymentFailed, await_until, run, say
from tests.fixtures.helm import KUBERNETES
from tests.fixtures.kustomize import Resource, build
from tests.fixtures.logins import Keys
from tests.fixtures.secured import Authority, SecuredElastic

IMAGES = ("postgres:18.1", "elasticsearch:8.14.1", "outbox-pause:local")
OURS = f"outbox-projector:{__version__}"
NAMESPACE, SERVERS = "outbox", "servers"
DATABASE = "app"
OWNER = "app_owner"
CHANGES = 1000
GRACE_SECONDS = 35
REQUEST_SECONDS = 120  # for a server on a busy machine
PROJECTORS = "app.kubernetes.io/component=projector"
HOME = "/usr/share/elasticsearch"
SECURITY = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def restrict(server: ApiServer, namespace: str) -> None:
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn", "audit")]
    server.kubectl("label", "namespace", namespace, *labels)


class Servers:
    """PostgreSQL, an Elasticsearch with TLS and keys for the production overlay, and one without for that of dev."""

    def __init__(self, server: ApiServer, node: PodNode, folder: Path) -> None:
        self.api, self.node = server, node
        self.password = secrets.token_hex(8)
        self.authority = Authority.made(folder / "authority")
        self.certificate = self.authority.certificate
        prefix = PODS.rpartition(".")[0]
        addresses = [f"IP:{prefix}.{last}" for last in range(2, 40)]
        self._tls = self.authority.issue("elasticsearch", "DNS:elasticsearch", *addresses)

    def start(self) -> None:
        self.api.kubectl("create", "namespace", SERVERS)
        restrict(self.api, SERVERS)
        data = {"tls.key": self._tls.key.read_text(), "tls.crt": self._tls.certificate.read_text()}
        data |= {"users": f"admin:{_hashed(self.password)}\n", "users_roles": "superuser:admin\n"}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "elasticsearch"}, "stringData": data})
        for made in (self._postgres(), self._elasticsearch("elasticsearch", True), self._elasticsearch("plain", False)):
            self.apply(made)
        self.api.kubectl("-n", SERVERS, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=480s", limit=500)
        for name, pod in (("postgresql", "postgresql"), ("elasticsearch", "elasticsearch")):
            self.node.names.give(f"{name}.{NAMESPACE}", self.address(pod))
        self.node.names.give("elasticsearch.outbox-dev", self.address("plain"))

    def apply(self, resource: Resource) -> None:
        self.api.kubectl("-n", SERVERS, "apply", "-f", "-", text=json.dumps(resource))

    def _postgres(self) -> Resource:
        env = {"POSTGRES_USER": OWNER, "POSTGRES_PASSWORD": self.password, "POSTGRES_DB": DATABASE}
        container = {
            "name": "postgresql",
            "image": "postgres:18.1",
            # `logical` for the connector of overlays/kafka.
            "args": ["postgres", "-c", "max_connections=200", "-c", "wal_level=logical"],
            "resources": {"requests": {"cpu": "200m"}},
            "readinessProbe": probe(["psql", "-h", "127.0.0.1", "-U", OWNER, "-d", DATABASE, "-c", "select 1"]),
        }
        return as_pod(container, 999, env, {"/var/lib/postgresql": {"emptyDir": {}}})

    def _elasticsearch(self, name: str, secured: bool) -> Resource:
        env = {
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "xpack.ml.enabled": "false",
            "ES_JAVA_OPTS": "-Xms512m -Xmx512m -XX:TieredStopAtLevel=1",
            "xpack.security.enabled": str(secured).lower(),
        }
        mounts: dict[str, Any] = {f"{HOME}/data": {"emptyDir": {}}}
        scheme = "http"
        if secured:
            scheme = "https"
            env |= {"xpack.security.http.ssl.enabled": "true", "xpack.security.autoconfiguration.enabled": "false"}
            env |= {
                f"xpack.security.http.ssl.{kind}": f"tls/tls.{end}"
                for kind, end in (("key", "key"), ("certificate", "crt"))
            }
            secret = {"secret": {"secretName": "elasticsearch", "defaultMode": 0o440}}
            mounts |= {
                f"{HOME}/config/tls": secret,
                f"{HOME}/config/users": secret,
                f"{HOME}/config/users_roles": secret,
            }
        container = {
            "name": name,
            "image": "elasticsearch:8.14.1",
            # Without a share of its own it gets a five hundredth of what everything else here gets.
            "resources": {"requests": {"cpu": "300m" if secured else "100m"}},
            # With security it answers 401, which is an answer.
            "readinessProbe": probe(["curl", "-sko", "/dev/null", f"{scheme}://127.0.0.1:9200"]),
        }
        return as_pod(container, 1000, env, mounts)

    def address(self, pod: str) -> str:
        return self.api.kubectl("-n", SERVERS, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    def database_url(self, user: str = OWNER, host: str = "", database: str = DATABASE) -> str:
        return f"postgresql://{user}:{self.password}@{host or self.address('postgresql')}:5432/{database}"

    @property
    def elastic_url(self) -> str:
        return f"https://{self.address('elasticsearch')}:9200"

    def admin(self) -> Elasticsearch:
        return connect(
            self.elastic_url,
            basic_auth=("admin", self.password),
            ca_certs=str(self.certificate),
            request_timeout=REQUEST_SECONDS,
        )

    def kill(self, pod: str, sign: int) -> None:
        """Its process; the kubelet starts the container again, with the same address and data."""
        before = _status(self.api, SERVERS, pod)["restartCount"]
        os.kill(_process(self.node, self.api, SERVERS, pod), sign)
        await_until(lambda: _restarted(self.api, SERVERS, pod, before), f"{pod} was started again", 240)


def as_pod(container: Resource, user: int, env: dict[str, str], mounts: dict[str, Any]) -> Resource:
    """One that meets the restricted standard too. A path of a file takes only that file of its Secret."""
    volumes = [{"name": f"v{n}", **source} for n, source in enumerate(mounts.values())]
    places = [{"name": f"v{n}", "mountPath": place} for n, place in enumerate(mounts)]
    for place in places:
        if (name := Path(place["mountPath"]).name).startswith("users"):
            place["subPath"] = name
    security = {name: SECURITY[name] for name in ("allowPrivilegeEscalation", "capabilities")}
    container |= {
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": places,
        "securityContext": security,
    }
    whole = {name: SECURITY[name] for name in ("runAsNonRoot", "seccompProfile")}
    spec = {
        "securityContext": {**whole, "runAsUser": user, "fsGroup": user},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": container["name"]}, "spec": spec}


def probe(command: list[str]) -> Resource:
    return {"exec": {"command": command}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 90}


def _hashed(password: str) -> str:
    """As Elasticsearch's file of users has it."""
    salt, rounds = secrets.token_bytes(32), 10000
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds, 32)
    encoded = (base64.b64encode(each).decode() for each in (salt, key))
    return "{PBKDF2}" + "$".join((str(rounds), *encoded))


def _status(api: ApiServer, namespace: str, pod: str) -> dict[str, Any]:
    told = json.loads(api.kubectl("-n", namespace, "get", "pod", pod, "-o", "json"))
    found: dict[str, Any] = told["status"]["containerStatuses"][0]
    return found


def _restarted(api: ApiServer, namespace: str, pod: str, before: int) -> bool:
    status = _status(api, namespace, pod)
    return bool(status["restartCount"] > before and status["ready"])


def _process(node: PodNode, api: ApiServer, namespace: str, pod: str) -> int:
    container = _status(api, namespace, pod)["containerID"].removeprefix("containerd://")
    return node.processes()[container]


class Production:
    """overlays/production, as people handle it."""

    expected_failures = 0
    index = "search-index"

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.servers, self.api = servers, servers.api
        self._folder = folder / "people"
        self.database_url = servers.database_url()

    def kubectl(self, *words: str | Path, text: str | None = None, check: bool = True, limit: float = 200) -> str:
        return self.api.kubectl("-n", NAMESPACE, *words, text=text, check=check, limit=limit)

    def client(self) -> Elasticsearch:
        return self.servers.admin()

    def install(self) -> Figures:
        """By the block of the README, word for word."""
        self._write_secrets()
        _, _, rest = (KUBERNETES / "README.md").read_text().partition("```sh kubectl\n")
        for line in rest.partition("```")[0].splitlines():
            if line.startswith("#"):
                self._give_logins()
                continue
            began = time.monotonic()
            run("sh", "-ec", line, env={**os.environ, "KUBECONFIG": str(self.api.config())}, cwd=self._folder)
            if line == f"kubectl create namespace {NAMESPACE}":
                restrict(self.api, NAMESPACE)
            if " apply -k deploy/kubernetes/overlays" in line:
                self.job("create", ["index", "create"], "outbox-administrator", settings=True)
        return {"ready_seconds": round(time.monotonic() - began, 1), "pods": len(self._pods())}

    def _write_secrets(self) -> None:
        files = {
            "migrate": {"database_url": self._url(OWNER)},
            "scaler": {"database_url": self._url("search_outbox_reader")},
        }
        keys = Keys(SecuredElastic(self.servers.elastic_url, self.servers.admin(), self.servers.certificate))
        projector = {
            "database_url": self._url("search_outbox_projector"),
            "elastic_api_key": keys.daemon(self.index).secret,
        }
        console = {
            "database_url": self._url("search_outbox_operator"),
            "elastic_api_key": keys.people(self.index).secret,
        }
        tokens = (ROOT / "deploy" / "compose" / "console_tokens").read_text()
        files |= {"projector": projector, "console": {**console, "console_tokens": tokens}}
        files["administrator"] = {**console, "elastic_api_key": keys.administrator(self.index).secret}
        for part, contents in files.items():
            (self._folder / part).mkdir(parents=True)
            for name, text in contents.items():
                (self._folder / part / name).write_text(text)
        (self._folder / "ca.pem").write_text(self.servers.certificate.read_text())
        (self._folder / "deploy").symlink_to(ROOT / "deploy")

    def _url(self, user: str) -> str:
        return self.servers.database_url(user, "postgresql")

    def _give_logins(self) -> None:
        roles = ("projector", "operator", "reader")
        change = "alter role search_outbox_{} login password '{}'"
        scenario.execute(self, *(change.format(role, self.servers.password) for role in roles))
        files = [f"--from-file={self._folder / 'administrator'}", f"--from-file={self._folder / 'ca.pem'}"]
        self.kubectl("create", "secret", "generic", "outbox-administrator", *files)

    # What the scenario does

    def job(self, name: str, arguments: list[str], secret: str = "outbox-migrate", settings: bool = False) -> str:
        """A command in the migration's Job, to its end."""
        self.begin(name, arguments, secret, settings)
        try:
            return self.finished(name)
        finally:
            self.kubectl("delete", "job", name, "--cascade=foreground")

    def begin(self, name: str, arguments: list[str], secret: str, settings: bool) -> None:
        job = made_job(name, arguments, secret, settings)
        self.kubectl("apply", "-f", "-", text=json.dumps(job))

    def finished(self, name: str) -> str:
        await_until(lambda: self._counts(name), f"the Job {name} has ended", 180)
        told = self.kubectl("logs", f"job/{name}", "--tail=-1")
        if "succeeded" not in self._counts(name):
            raise DeploymentFailed(f"the Job {name} failed: {told[-2000:]}")
        return told

    def _counts(self, name: str) -> dict[str, int]:
        status = json.loads(self.kubectl("get", "job", name, "-o", "json"))["status"]
        return {word: status[word] for word in ("succeeded", "failed") if status.get(word)}

    def owner(self, *arguments: str) -> str:
        return self.job("owner", list(arguments))

    def operator(self, *arguments: str) -> str:
        return self.kubectl("exec", "deploy/outbox-console", "--", "outbox", *arguments, limit=260)

    def start(self) -> None:
        self.scale(2)

    def scale(self, count: int) -> None:
        self.kubectl("scale", "deployment/outbox-projector", f"--replicas={count}")
        self._rolled_out()
        await_until(lambda: len(self._pods()) == count, f"{count} projectors", 60)

    def _rolled_out(self) -> None:
        self.kubectl("rollout", "status", "deployment/outbox-projector", "--timeout=180s")

    def roll(self) -> None:
        before = self._pods()
        self.kubectl("rollout", "restart", "deployment/outbox-projector")
        self._rolled_out()
        await_until(lambda: len(self._pods()) == 2 and not self._pods() & before, "two new projectors", 60)

    def kill(self) -> None:
        pod = min(self._pods())
        before = _status(self.api, NAMESPACE, pod)["restartCount"]
        os.kill(_process(self.servers.node, self.api, NAMESPACE, pod), signal.SIGKILL)
        await_until(lambda: _restarted(self.api, NAMESPACE, pod, before), "a new process", 60)
        ended = _status(self.api, NAMESPACE, pod)["lastState"]["terminated"]
        if ended["exitCode"] != 137:
            raise DeploymentFailed(f"{pod}: {ended}")

    def stop(self) -> None:
        self.kubectl("scale", "deployment/outbox-projector", "--replicas=0")
        await_until(lambda: not self._pods(), "no projector is left", 60)
        self._check_leases()

    def restart_database(self) -> None:
        self.servers.kill("postgresql", signal.SIGINT)

    def restart_search(self) -> None:
        self.servers.kill("elasticsearch", signal.SIGTERM)

    def _pods(self) -> set[str]:
        return set(self.kubectl("get", "pods", "-l", PROJECTORS, "-o", "name").replace("pod/", "").split())

    def _check_leases(self, worker: str = "%") -> None:
        """A process that was killed instead of drained leaves its lease."""
        with psycopg.connect(self.database_url) as connection:
            left = connection.execute(
                "select owner, cardinality(ids) from search_outbox_leases where owner like %s", [f"{worker}%"]
            ).fetchall()
        if left:
            raise DeploymentFailed(f"leases are left open: {left}")

    # What only a cluster has

    def rolled(self) -> Figures:
        """Again and again, until a thousand changes were committed meanwhile."""
        rounds = 0
        with scenario.load(self) as writer:
            while writer.committed < CHANGES:
                self.roll()
                rounds += 1
        return {"rounds": rounds, "committed": writer.committed}

    def deleted(self) -> Figures:
        """`kubectl delete pod` with work in flight: its time, and no lease of it is left."""
        scenario.execute(
            self, "insert into notes (title, price) select 'drain ' || i, i from generate_series(1, 3000) as i"
        )
        pod = min(self._pods())
        began = time.monotonic()
        self.kubectl("delete", "pod", pod, limit=GRACE_SECONDS + 20)
        took = time.monotonic() - began
        self._check_leases(pod)
        if took >= GRACE_SECONDS:
            raise DeploymentFailed(f"{pod} took {took:.1f} s, its grace is {GRACE_SECONDS} s")
        self._rolled_out()
        return {"drain_seconds": round(took, 1), "grace_seconds": GRACE_SECONDS}

    def scaled(self) -> Figures:
        took = {}
        for count in (4, 1, 2):
            began = time.monotonic()
            self.scale(count)
            took[f"to {count}"] = round(time.monotonic() - began, 1)
        return took

    def drained(self) -> Figures:
        """The node, in the middle of a rebuild: the budget keeps one projector, the rebuild is resumed."""
        rebuild = ["rebuild", "--yes", "--by", "deployed"]
        self.begin("rebuild", [*rebuild, "--rate", "100"], "outbox-administrator", settings=True)
        await_until(lambda: "backfilling" in self.operator("rebuild", "--status"), "the rebuild copies", 60)
        selector = "--pod-selector=app.kubernetes.io/name=outbox"
        drain = ("drain", NODE, selector, "--delete-emptydir-data", "--force")
        told = self.api.kubectl(*drain, "--timeout=15s", check=False)
        refused = [line for line in told.splitlines() if "disruption budget" in line]
        ready = self.kubectl(
            "get", "pods", "-l", PROJECTORS, "-o", "jsonpath={.items[*].status.containerStatuses[*].ready}"
        )
        if not refused or "true" not in ready:
            raise DeploymentFailed(f"the drain took every projector: {told}")
        self.api.kubectl("uncordon", NODE)
        self._rolled_out()
        self.kubectl("rollout", "status", "deployment/outbox-console", "--timeout=60s")
        self.kubectl("delete", "job", "rebuild", "--cascade=foreground")
        status = self.operator("rebuild", "--status")
        self.job("resume", [*rebuild, "--resume"], "outbox-administrator", settings=True)
        self.job("finish", [*rebuild, "--finish"], "outbox-administrator", settings=True)
        return {"refused": refused[0].strip()[:200], "rebuild": status.strip().splitlines()[0][:200]}


def made_job(name: str, arguments: list[str], secret: str, settings: bool) -> Resource:
    [job] = build(KUBERNETES / "migrate")
    job["metadata"]["name"] = name
    job["spec"]["backoffLimit"] = 0
    spec = job["spec"]["template"]["spec"]
    spec["volumes"][0]["secret"]["secretName"] = secret
    spec["containers"][0]["args"] = arguments
    if settings:
        spec["containers"][0]["envFrom"] = [{"configMapRef": {"name": "outbox"}}]
    return job


def play(servers: Servers, folder: Path, figures: Figures) -> Production:
    site = Production(servers, folder)
    figures["production"] = site.install()
    say(f"   overlay production: {figures['production']}")
    scenario.prepare(site)
    site.start()  # the overlay leaves the number to KEDA
    scenario.play(
        site,
        figures,
        rolled_under_a_thousand_changes=lambda s: _then_equal(s, s.rolled),
        pod_deleted_with_a_backlog=lambda s: _then_equal(s, s.deleted),
        scaled_under_load=lambda s: _loaded(s, s.scaled),
        node_drained_in_a_rebuild=lambda s: _loaded(s, s.drained),
    )
    return site


def _then_equal(site: Production, act: Any) -> Figures:
    figures: Figures = act()
    return figures | scenario.settled(site)


def _loaded(site: Production, act: Any) -> Figures:
    figures: Figures = {}
    return scenario.under_load(site, lambda: figures.update(act())) | figures
