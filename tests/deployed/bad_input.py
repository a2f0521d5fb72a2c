"""Owns what people get wrong in a cluster: each ends in an event, a status or a log line that names the cause."""

import json
import re
import time
from pathlib import Path

import psycopg

from tests.deployed import pods, scenario
from tests.deployed.node import GATEWAY
from tests.deployed.scenario import Figures
from tests.deployed.shell import ROOT, DeploymentFailed, await_until, run, say
from tests.fixtures.helm import KUBERNETES

NAMESPACE = "outbox-dev"
DEPLOYMENT = "deployment/outbox-projector"
DATABASE = "dev"
NO_REGISTRY = "127.0.0.1:1/outbox-projector:none"
OLDER = "24"  # a schema before the newest
SMALL = "64Mi"
HOST = f"postgresql.{NAMESPACE}"


def play(servers: pods.Servers, folder: Path) -> Figures:
    """overlays/dev, as a person meets it who does everything too early or wrong; at the end it is ready."""
    site = Dev(servers, folder)
    site.api.kubectl("create", "namespace", NAMESPACE)
    pods.restrict(site.api, NAMESPACE)
    site.api.kubectl("apply", "-k", KUBERNETES / "overlays" / "dev")
    found: Figures = {}
    for act in (
        site.secret_missing,
        site.secret_empty,
        site.database_not_there,
        site.no_schema,
        site.two_migrations,
        site.older_schema,
        site.secret_with_a_final_newline,
        site.too_little_memory,
        site.image_not_pulled,
    ):
        found[act.__name__.replace("_", " ")] = act()
        say(f"   {act.__name__}: {found[act.__name__.replace('_', ' ')]}")
    site.api.kubectl("delete", "-k", KUBERNETES / "overlays" / "dev")
    return found


class Dev:
    def __init__(self, servers: pods.Servers, folder: Path) -> None:
        self.servers, self.api = servers, servers.api
        self._folder = folder
        self.database_url = servers.database_url(database=DATABASE)
        self._since = time.time()

    def kubectl(self, *words: str | Path, text: str | None = None, check: bool = True) -> str:
        return self.api.kubectl("-n", NAMESPACE, *words, text=text, check=check, limit=200)

    # What is wrong

    def secret_missing(self) -> str:
        return self._said(r'FailedMount: .*secret "outbox-projector" not found')

    def secret_empty(self) -> str:
        self._secret("")
        return self._said(r"DATABASE_URL_FILE.*")

    def database_not_there(self) -> str:
        """First without a name, then without a server behind it; the pods are not restarted for it."""
        self._secret(self._url)
        self._said(r"waiting for PostgreSQL.*|(?i:name or service not known).*")
        self.servers.node.names.give(HOST, GATEWAY)
        said = self._said(r"(?i:connection refused).*")
        if "503" not in self._said(r"Unhealthy: Readiness probe failed: .*503"):
            raise DeploymentFailed("the pod is ready without a database")
        if self._restarts():
            raise DeploymentFailed("a pod without a database was restarted")
        return said

    def no_schema(self) -> str:
        with psycopg.connect(self.servers.database_url(), autocommit=True) as connection:
            connection.execute(f"create database {DATABASE}".encode())
        self.servers.node.names.give(HOST, self.servers.address("postgresql"))
        self._secret(self._owner)  # the projector's own role is made by the migration
        return self._said(r".*Run `outbox migrate`.*")

    def two_migrations(self) -> str:
        owner = self._owner
        self.kubectl("create", "secret", "generic", "outbox-migrate", f"--from-literal=database_url={owner}")
        for name in ("first", "second"):
            self.kubectl("apply", "-f", "-", text=json.dumps(pods.made_job(name, ["migrate"], "outbox-migrate", False)))
        self.kubectl("wait", "--for=condition=complete", "job/first", "job/second", "--timeout=120s")
        logs = [self.kubectl("logs", f"job/{name}").strip().splitlines()[-1] for name in ("first", "second")]
        change = "alter role search_outbox_projector login password '{}'"
        scenario.execute(self, change.format(self.servers.password))
        return " | ".join(log[:60] for log in logs)

    def older_schema(self) -> str:
        script = run(ROOT / ".venv" / "bin" / "outbox", "migrate", "sql", "--back-to", OLDER)
        psql = (
            "exec",
            "-i",
            "postgresql",
            "--",
            "psql",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            pods.OWNER,
            "-d",
            DATABASE,
        )
        self.api.kubectl("-n", pods.SERVERS, *psql, text=script)
        self._secret(self._url)
        said = self._said(r".*too old.*")
        job = pods.made_job("again", ["migrate"], "outbox-migrate", False)
        self.kubectl("apply", "-f", "-", text=json.dumps(job))
        self.kubectl("wait", "--for=condition=complete", "job/again", "--timeout=120s")
        return said

    def secret_with_a_final_newline(self) -> str:
        self._secret(f"{self._url}\n")
        self.kubectl("rollout", "status", DEPLOYMENT, "--timeout=120s")
        return "ready"

    def too_little_memory(self) -> str:
        self.kubectl("set", "resources", DEPLOYMENT, f"--limits=memory={SMALL}", f"--requests=memory={SMALL}")
        said = self._said(r"the memory limit is .*")
        self.kubectl("rollout", "undo", DEPLOYMENT)
        self.kubectl("rollout", "status", DEPLOYMENT, "--timeout=120s")
        return said

    def image_not_pulled(self) -> str:
        """The pods that run stay until the new one is ready, which it never is."""
        self.kubectl("set", "image", DEPLOYMENT, f"projector={NO_REGISTRY}")
        said = self._said(rf"(ErrImagePull|Failed): .*{NO_REGISTRY}.*")
        ready = self.kubectl("get", DEPLOYMENT, "-o", "jsonpath={.status.readyReplicas}")
        self.kubectl("rollout", "undo", DEPLOYMENT)
        if ready != "1":
            raise DeploymentFailed(f"{ready} projectors are ready beside an image that cannot be pulled")
        return said

    # How it is done

    @property
    def _url(self) -> str:
        return self.servers.database_url("search_outbox_projector", "postgresql", DATABASE)

    @property
    def _owner(self) -> str:
        return self.servers.database_url(host="postgresql", database=DATABASE)

    def _secret(self, url: str) -> None:
        path = self._folder / "database_url"
        path.write_text(url)
        made = self.kubectl(
            "create", "secret", "generic", "outbox-projector", f"--from-file={path}", "--dry-run=client", "-o", "yaml"
        )
        self.kubectl("apply", "-f", "-", text=made)
        self._fresh()

    def _fresh(self) -> None:
        """New pods, which do not wait out how often the last one failed; only what is said of them counts."""
        self.kubectl("delete", "pods", "-l", pods.PROJECTORS, "--grace-period=1")
        self.kubectl("delete", "events", "--all")

    def _restarts(self) -> int:
        told = self.kubectl(
            "get", "pods", "-l", pods.PROJECTORS, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
        )
        return sum(map(int, told.split()))

    def _said(self, pattern: str) -> str:
        """The line of an event, a status or a log which matches."""
        found: list[str] = []

        def probe() -> bool:
            found[:] = [match[0] for line in self._lines() if (match := re.search(pattern, line))]
            return bool(found)

        try:
            await_until(probe, f"a line like {pattern}", 120)
        except DeploymentFailed as failed:
            raise DeploymentFailed(f"{failed}; there is: {self._lines()[-30:]}") from None
        return found[-1].replace(self.servers.password, "***")[:300]

    def _lines(self) -> list[str]:
        events = json.loads(self.kubectl("get", "events", "-o", "json"))["items"]
        lines = [f"{event['reason']}: {event['message']}" for event in events]
        for pod in json.loads(self.kubectl("get", "pods", "-l", pods.PROJECTORS, "-o", "json"))["items"]:
            for status in pod["status"].get("containerStatuses", []):
                states = [state for name in ("state", "lastState") for state in status.get(name, {}).values()]
                lines += [f"{state.get('reason', '')}: {state.get('message', '')}" for state in states]
            for more in ((), ("--previous",)):
                lines += self.kubectl("logs", pod["metadata"]["name"], "--tail=40", *more, check=False).splitlines()
        return lines
