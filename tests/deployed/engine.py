"""Owns the Docker engine of a run: the one that answers here, or one of Debian's packages, which is removed again."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.deployed.debian import fetch_programs, install, require_root
from tests.deployed.shell import DeploymentFailed, MissingSoftware, ask, await_until, run, say

PROGRAMS = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "containerd", "containernetworking-plugins")
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
BRIDGES = re.compile(r"docker0|br-[0-9a-f]{12}")
TABLES = ("filter", "nat", "raw", "mangle")


@dataclass(frozen=True, slots=True)
class Engine:
    folder: Path
    env: Mapping[str, str]
    own: bool
    versions: dict[str, str] = field(default_factory=dict)

    def docker(self, *argv: str | Path, limit: float = 900, check: bool = True, text: str | None = None) -> str:
        return run("docker", *argv, env=self.env, limit=limit, check=check, text=text)

    def has_image(self, name: str) -> bool:
        return bool(self.docker("image", "ls", "-q", name).strip())


@contextmanager
def docker_engine(folder: Path) -> Iterator[Engine]:
    if engine := _existing(folder):
        say(f"   the engine that is there: {engine.versions}")
        yield engine
        return
    require_root("a Docker engine (none answers here)")
    with _own(folder) as engine:
        say(f"   an engine of Debian's packages: {engine.versions}")
        yield engine


def _existing(folder: Path) -> Engine | None:
    if not ask("docker", "info", "--format", "{{.ServerVersion}}").strip():
        return None
    if not ask("docker", "compose", "version", "--short"):
        raise MissingSoftware("an engine answers, but `docker compose` does not: install the compose plugin (v2)")
    return _known(folder, dict(os.environ), own=False)


def _known(folder: Path, env: dict[str, str], own: bool) -> Engine:
    told = json.loads(run("docker", "version", "--format", "{{json .Server}}", env=env))
    compose = run("docker", "compose", "version", "--short", env=env).strip()
    return Engine(folder, env, own, {"docker": told["Version"], "compose": compose})


@contextmanager
def _own(folder: Path) -> Iterator[Engine]:
    folder.mkdir(parents=True, exist_ok=True)
    install({"runc": "runc", "iptables": "iptables", "mmdebstrap": "mmdebstrap"})
    programs = fetch_programs(folder, PROGRAMS)
    env = _environment(folder, programs)
    before = Traces.seen()
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            [
                *("dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                *("--pidfile", str(folder / "dockerd.pid"), "-H", env["DOCKER_HOST"], "--ip6tables=false"),
            ],
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C stops what runs on it first
        )
    try:
        await_until(lambda: run("docker", "info", env=env, limit=20), f"dockerd ({folder / 'dockerd.log'})", 90)
        engine = _known(folder, env, own=True)
        try:
            yield engine
        finally:
            _empty(engine)
    finally:
        _stop(daemon)
        before.restore()


def _environment(folder: Path, programs: Path) -> dict[str, str]:
    """A socket of its own, so that nothing else on the machine finds this engine by chance."""
    for name in ("bin", "cfg/cli-plugins"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    wanted = [("bin", path) for path in (*(programs / "usr/bin").iterdir(), *(programs / "usr/sbin").iterdir())]
    wanted += [("cfg/cli-plugins", path) for path in (programs / "usr/libexec/docker/cli-plugins").iterdir()]
    for place, program in wanted:
        link = folder / place / program.name
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    runc = folder / "bin" / "runc"  # the other's needs a newer libseccomp
    runc.unlink(missing_ok=True)
    runc.symlink_to(shutil.which("runc") or "/usr/sbin/runc")
    return {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "DOCKER_HOST": f"unix://{folder / 'docker.sock'}",
        "DOCKER_CONFIG": str(folder / "cfg"),
    }


def _empty(engine: Engine) -> None:
    """Everything but the images, which the next run needs."""
    if found := engine.docker("ps", "-aq").split():
        engine.docker("rm", "-f", "-v", *found)
    engine.docker("network", "prune", "-f")
    engine.docker("volume", "prune", "-a", "-f")


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    """It stops its own containerd."""
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(60)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait(10)


@dataclass(frozen=True, slots=True)
class Traces:
    """What an engine leaves in the kernel: rules, bridges, forwarding."""

    rules: dict[str, str]
    links: frozenset[str]
    forward: str

    @classmethod
    def seen(cls) -> "Traces":
        return cls({table: _rules(table) for table in TABLES}, _links(), FORWARD.read_text())

    def restore(self) -> None:
        for link in _links() - self.links:
            ask("ip", "link", "delete", link)
        for table, rules in self.rules.items():
            if _rules(table) == rules:
                continue
            if rules:
                run("iptables-restore", "-T", table, text=rules)
            else:
                _clear(table)
        FORWARD.write_text(self.forward)
        left = Traces.seen()
        if (left.rules, left.links, left.forward) != (self.rules, self.links, self.forward):
            raise DeploymentFailed(f"the machine is not as before: {left} instead of {self}")


def _rules(table: str) -> str:
    """Without comments and counters, and nothing for a table whose chains are empty and let everything through."""
    lines = [line for line in ask("iptables-save", "-t", table).splitlines() if not line.startswith("#")]
    lines = [re.sub(r"\[\d+:\d+\]", "[0:0]", line) for line in lines]
    if all(re.fullmatch(r":\w+ ACCEPT \[0:0\]|\*\w+|COMMIT", line) for line in lines):
        return ""
    return "\n".join(lines) + "\n"


def _clear(table: str) -> None:
    """Back to a table that nobody used."""
    chains = re.findall(r"^:(\w+) (?:ACCEPT|DROP)", ask("iptables-save", "-t", table), re.MULTILINE)
    for arguments in (*(("-P", chain, "ACCEPT") for chain in chains), ("-F",), ("-X",)):
        run("iptables", "-t", table, *arguments)


def _links() -> frozenset[str]:
    """Bridges of an engine, and what hangs on them: another program may make interfaces while this one runs."""
    bridges = [path for path in Path("/sys/class/net").iterdir() if BRIDGES.fullmatch(path.name)]
    return frozenset(link for path in bridges for link in (path.name, *(each.name for each in path.glob("brif/*"))))
